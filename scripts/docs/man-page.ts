/** `npm run -s man`: prints the manual page, which consists of the help texts. `npm run pack:all` adds it to the package. */
import { readFileSync } from "node:fs";
import { connectHelp } from "../../src/cli/help/connect-help.ts";
import { renderCommandList, renderHelp } from "../../src/cli/help/help-page.ts";
import { COMMANDS } from "../../src/cli/main.ts";

/** Returns the page in the format of man(7). */
export async function manPage(): Promise<string> {
  const { version, description }: { version: string; description: string } = JSON.parse(
    readFileSync("package.json", "utf8"),
  );
  const loaded = await Promise.all(Object.values(COMMANDS).map((load) => load()));
  const commands = await Promise.all(
    loaded.flatMap(({ command }) => [command, ...Object.values(command.subcommands ?? {}).map((load) => load())]),
  );
  const sections = [
    ["NAME", `procwire \\- ${escapeRoff(description)}`],
    ["SYNOPSIS", ".B procwire\n.I COMMAND\n[OPTIONS]"],
    ["COMMANDS", verbatim(renderCommandList())],
    ["CONNECTION OPTIONS", verbatim(connectHelp())],
    ...commands.map(({ name, help }) => [`PROCWIRE ${name.toUpperCase()}`, verbatim(renderHelp(name, help))]),
  ];
  const title = `.TH PROCWIRE 1 "" "procwire ${version}" "User commands"`;
  return `${[title, ...sections.map(([name, text]) => `.SH ${name}\n${text}`)].join("\n")}\n`;
}

/** Formats text with its line breaks. */
const verbatim = (text: string) => `.nf\n${text.trimEnd().split("\n").map(escapeRoff).join("\n")}\n.fi`;

/** Escapes backslashes, dashes, and a dot or quote at the start of a line, which would start a request. */
const escapeRoff = (line: string) =>
  line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replace(/^(?=[.'])/, "\\&");

if (import.meta.main) process.stdout.write(await manPage());
