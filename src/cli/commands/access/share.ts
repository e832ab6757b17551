import { formatAge } from "../../../base/text/format-age.ts";
import { printableLine } from "../../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../../client/exec-server-client.ts";
import type { AttachRole } from "../../../client/process/attached-process.ts";
import type { ShareEntry } from "../../../exec/exec-process.ts";
import { type Command, singleArgument, UsageError } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";
import { requireServerUrl } from "../../options/connect-options.ts";
import { parseDuration } from "../../options/parse-duration.ts";
import { defineServerCommand, openClient } from "../../server-command.ts";
import { findProcess } from "../../support/find-process.ts";

const DEFAULT_EXPIRY = "1h";
/** Maximum that a server accepts. */
const MAX_EXPIRY = "7d";

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID", "list [OPTIONS]", "revoke [OPTIONS] LINK"],
  details: `A share link is a URL that lets a guest watch one process in a browser, and nothing else. The link expires after a
    time and when the process ends. The server does not store the link. Share links require a server with --web. For other
    servers and Unix sockets the command prints a share token, for \`PROCWIRE_TOKEN=TOKEN procwire attach --view ID\`.`,
  options: {
    Link: [
      ["--drive", "let the guest also send input and signals, and terminate the process"],
      ["--expires TIME", `lifetime of the link: 90s, 15m, 2h; maximum ${MAX_EXPIRY} (default: ${DEFAULT_EXPIRY})`],
    ],
    "Live links": [
      ["--list", "list the links of the process: id, role, remaining time, guests, creator"],
      ["--revoke LINK", "invalidate the link with this id, and disconnect its guests"],
    ],
  },
  examples: [
    ["procwire share k3v7q2m9", "let a guest watch for an hour"],
    ["procwire share --drive --expires 15m k3v7", "let a guest type for 15 minutes"],
    ["procwire share --connect wss://build.example:7070 k3v7", "a process of another server"],
    ["procwire share list", "list the links of all processes"],
    ["procwire share revoke share:1", "end the access of a guest"],
  ],
};

const LIST_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Lists the live links of all processes of this principal: id, role, remaining time, guests, creator and handle. An
    operator sees the links of all principals.`,
  options: {},
  examples: [
    ["procwire share list", "links of the server on this host"],
    ["procwire share list --connect wss://build.example:7070", "another server"],
    ["procwire share list --token-file operator", "links of all principals"],
  ],
};

const REVOKE_HELP: HelpPage = {
  usage: ["[OPTIONS] LINK"],
  details: "Invalidates the link with this id, and disconnects its guests.",
  options: {},
  examples: [
    ["procwire share revoke share:1", "end the access of a guest"],
    ["procwire share revoke --connect ssh://build-host share:2", "on another host"],
    ["procwire share revoke --token-file operator share:3", "as operator"],
  ],
};

const list: Command = defineServerCommand("share list", LIST_HELP, {
  takesArguments: false,

  async run(values) {
    await using client = await openClient(values);
    for (const [handle, shares] of await allShares(client)) printShares(shares, handle);
    return 0;
  },
});

const revoke: Command = defineServerCommand("share revoke", REVOKE_HELP, {
  async run(values, positionals) {
    const link = singleArgument(positionals, "LINK");
    await using client = await openClient(values);
    for (const [handle, shares] of await allShares(client))
      if (shares.some(({ shareId }) => shareId === link) && (await client.revokeShare(handle, link))) return 0;
    throw new Error(`unknown link ${link}; \`procwire share list\` lists the links`);
  },
});

/** Returns the links of each running process that this client sees, by handle. */
async function allShares(client: ExecServerClient): Promise<[string, ShareEntry[]][]> {
  const running = (await client.list({ allSessions: true })).filter((one) => one.running);
  const handles = running.map(({ handle }) => handle).filter((handle) => handle !== undefined);
  return Promise.all(
    handles.map(async (handle): Promise<[string, ShareEntry[]]> => [handle, await client.listShares(handle)]),
  );
}

const create: Command = defineServerCommand("share", HELP, {
  ids: { includesExited: false },
  options: {
    drive: { type: "boolean" },
    expires: { type: "string" },
    list: { type: "boolean" },
    revoke: { type: "string" },
  },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const ttlMs = parseDuration("expires", values.expires ?? DEFAULT_EXPIRY);
    if (ttlMs < 1 || ttlMs > parseDuration("expires", MAX_EXPIRY))
      throw new UsageError(`invalid --expires \`${values.expires}\`; expected more than 0 and at most ${MAX_EXPIRY}`);
    const url = requireServerUrl(values.connect);
    await using client = await openClient(values);
    const { handle } = await findProcess(client, id);
    if (values.list) return printShares(await client.listShares(handle));
    if (values.revoke !== undefined) {
      if (await client.revokeShare(handle, values.revoke)) return 0;
      throw new Error(`unknown link ${values.revoke} of process ${handle}; list the links with --list`);
    }
    const role = values.drive ? "driver" : "viewer";
    const { token } = await client.share(handle, { role, ttlMs });
    process.stdout.write(`${printableLine(shareUrl(url, handle, token, role) ?? token)}\n`);
    return 0;
  },
});

/** An ID `list` or `revoke` follows the separator: `procwire share -- list`. */
export const command: Command = {
  ...create,
  subcommands: { list: async () => list, revoke: async () => revoke },
  async run([first = "", ...rest]) {
    if (first === "list") return list.run(rest);
    return first === "revoke" ? revoke.run(rest) : create.run(first === "" ? [] : [first, ...rest]);
  },
};

function printShares(shares: readonly ShareEntry[], handle?: string): number {
  for (const { shareId, role, expiresAtMs, connections, principal } of shares) {
    const remaining = formatAge(Math.max(0, expiresAtMs - Date.now()));
    const columns = [shareId, role, remaining, `${connections} guests`, principal, ...(handle ? [handle] : [])];
    process.stdout.write(`${columns.map(printableLine).join("\t")}\n`);
  }
  return 0;
}

/** Returns the share URL with the token in the fragment, which browsers do not send and servers do not log. Null if a browser
 * cannot reach the server. */
function shareUrl(url: string, handle: string, token: string, role: AttachRole): string | null {
  if (!/^wss?:/.test(url)) return null;
  // Lets the console show the role before it connects; the server enforces the role.
  const roleParameter = role === "viewer" ? "&role=viewer" : "";
  return `${new URL(url.replace(/^ws/, "http")).origin}/#share=${token}&process=${handle}${roleParameter}`;
}
