import type { Role } from "../../client/process/attached-process.ts";
import { type Command, commandOf, onlyWord } from "../command.ts";
import { CONNECT_HELP, CONNECT_OPTIONS, connectTo, DEFAULT_URL } from "../options/connect-options.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { parseDuration } from "./logs.ts";

const HELP = `Usage: procwire share [options] ID

Prints an address where somebody else can watch a process in a browser, without any other right. It works until its time is
over or the process ends. Who has it has what it gives, so it is printed once and kept nowhere.

  --drive            they may also type into it, signal it and end it
  --expires TIME     for so long: 90s, 15m, 2h, 7d at most; default 1h
${CONNECT_HELP}
${HANDLE_HELP}Without --connect: ${DEFAULT_URL}. The page is there on a server with --web. On another one, or a unix socket, what is
printed is the token, for \`PROCWIRE_TOKEN=TOKEN procwire attach --view ID\`.
`;

const DEFAULT_EXPIRY = "1h";

export const command: Command = commandOf({
  name: "share",
  summary: "let somebody else watch or drive one process of a server",
  help: HELP,
  options: { ...CONNECT_OPTIONS, drive: { type: "boolean" }, expires: { type: "string" } },

  async run(values, positionals) {
    const id = onlyWord(positionals, "ID");
    const ttlMs = parseDuration(values.expires ?? DEFAULT_EXPIRY);
    const url = values.connect ?? DEFAULT_URL;
    await using client = await connectTo(url, values);
    const { handle } = await findProcess(client, id);
    const role = values.drive ? "driver" : "viewer";
    const { token } = await client.share(handle, { role, ttlMs });
    process.stdout.write(`${shareUrl(url, handle, token, role) ?? token}\n`);
    return 0;
  },
});

/** A fragment is sent to no server and stands in no log. Null where no browser gets to. */
function shareUrl(url: string, handle: string, token: string, role: Role): string | null {
  if (!/^wss?:/.test(url)) return null;
  // The page says at once what its visitor may do; the server decides it.
  const watches = role === "viewer" ? "&role=viewer" : "";
  return `${new URL(url.replace(/^ws/, "http")).origin}/#share=${token}&process=${handle}${watches}`;
}
