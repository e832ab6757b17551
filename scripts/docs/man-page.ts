/** `npm run -s man`: prints the manual page, which consists of the help texts. `npm run pack:all` adds it to the package. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

/** Returns the page in the format of man(7). */
export function manPage(): string {
  const { version, description }: { version: string; description: string } = JSON.parse(
    readFileSync("package.json", "utf8"),
  );
  const help = readHelp();
  const commands = Array.from(help.matchAll(/^ {2}([a-z][a-z-]*) {2}/gm), ([, name]) => name ?? "");
  const sections = [
    ["NAME", `procwire \\- ${escapeRoff(description)}`],
    ["SYNOPSIS", ".B procwire\n.I COMMAND\n[OPTIONS]"],
    ["COMMANDS", verbatim(help)],
    ...commands.map((name) => [`PROCWIRE ${name.toUpperCase()}`, verbatim(readHelp(name))]),
  ];
  const title = `.TH PROCWIRE 1 "" "procwire ${version}" "User commands"`;
  return `${[title, ...sections.map(([name, text]) => `.SH ${name}\n${text}`)].join("\n")}\n`;
}

function readHelp(...command: string[]): string {
  return execFileSync(resolve("bin", "procwire"), [...command, "--help"], { encoding: "utf8" });
}

/** Formats text with its line breaks. */
const verbatim = (text: string) => `.nf\n${text.trimEnd().split("\n").map(escapeRoff).join("\n")}\n.fi`;

/** Escapes backslashes, dashes, and a dot or quote at the start of a line, which would start a request. */
const escapeRoff = (line: string) =>
  line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replace(/^(?=[.'])/, "\\&");

if (import.meta.main) process.stdout.write(manPage());
