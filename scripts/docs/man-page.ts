/** `npm run -s man`: the manual page, made from what the commands say by `--help`; `npm run pack:all` puts it into the package. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

/** The page in the language of man(7). */
export function manPage(): string {
  const { version, description }: { version: string; description: string } = JSON.parse(
    readFileSync("package.json", "utf8"),
  );
  const help = helpOf();
  const commands = Array.from(help.matchAll(/^ {2}([a-z][a-z-]*) {2}/gm), ([, name]) => name ?? "");
  const sections = [
    ["NAME", `procwire \\- ${escaped(description)}`],
    ["SYNOPSIS", ".B procwire\n.I COMMAND\n[options]"],
    ["COMMANDS", verbatim(help)],
    ...commands.map((name) => [`PROCWIRE ${name.toUpperCase()}`, verbatim(helpOf(name))]),
  ];
  const title = `.TH PROCWIRE 1 "" "procwire ${version}" "User commands"`;
  return `${[title, ...sections.map(([name, text]) => `.SH ${name}\n${text}`)].join("\n")}\n`;
}

function helpOf(...command: string[]): string {
  return execFileSync(resolve("bin", "procwire"), [...command, "--help"], { encoding: "utf8" });
}

/** Text whose line breaks are preserved. */
const verbatim = (text: string) => `.nf\n${text.trimEnd().split("\n").map(escaped).join("\n")}\n.fi`;

/** A backslash begins a command, and so do a dot and a quote at the beginning of a line; a dash is not a hyphen. */
const escaped = (line: string) =>
  line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replace(/^(?=[.'])/, "\\&");

if (import.meta.main) process.stdout.write(manPage());
