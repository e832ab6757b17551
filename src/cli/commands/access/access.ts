import { fitTable, type TableColumn } from "../../../base/text/fit-table.ts";
import { formatAge } from "../../../base/text/format-age.ts";
import { printableJson, printableLine } from "../../../base/text/printable-text.ts";
import type { AccessEntry } from "../../../protocol/attach-schemas.ts";
import { outputColumns } from "../../../server/lifecycle/stdio-stream.ts";
import { type Command, defineSubcommands, singleArgument } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";
import { defineServerCommand, openClient } from "../../server-command.ts";

const HELP: HelpPage = {
  usage: ["SUBCOMMAND [OPTIONS] [ARGUMENTS]"],
  details: "Lists and ends the connections and console sessions of this principal; of all principals for an operator.",
  options: {},
  examples: [
    ["procwire access list", "connections and console sessions, oldest first"],
    ["procwire access revoke console:3", "sign a browser out"],
    ["procwire access revoke connection:12", "close a connection"],
  ],
};

const LIST_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Lists connections and console sessions: id, principal, address or browser, age, time since the last use, remaining
    validity and token id. An asterisk marks the connection of this command.`,
  options: { Listing: [["--json", "print one JSON object per line"]] },
  examples: [
    ["procwire access list", "accesses of the server on this host"],
    ["procwire access list --json", "for programs"],
    ["procwire access list --connect wss://build.example:7070", "another server"],
  ],
};

const REVOKE_HELP: HelpPage = {
  usage: ["[OPTIONS] ID"],
  details: `Closes a connection or ends a console session, with its WebSockets. The client does not reconnect. A client
    whose token is still valid can connect again; \`procwire token revoke\` revokes the token.`,
  options: {},
  examples: [
    ["procwire access revoke connection:12", "close a connection"],
    ["procwire access revoke console:3", "sign a browser out"],
    ["procwire access revoke --token-file operator connection:4", "as operator"],
  ],
};

const list: Command = defineServerCommand("access list", LIST_HELP, {
  takesArguments: false,
  options: { json: { type: "boolean" } },

  async run(values) {
    await using client = await openClient(values);
    const { accesses } = await client.call("access/list", {});
    const lines = values.json ? accesses.map(printableJson) : fitTable(columns(Date.now()), accesses, outputColumns());
    for (const line of lines) process.stdout.write(`${line}\n`);
    return 0;
  },
});

const revoke: Command = defineServerCommand("access revoke", REVOKE_HELP, {
  async run(values, positionals) {
    const accessId = singleArgument(positionals, "ID");
    await using client = await openClient(values);
    const { revoked } = await client.call("access/revoke", { accessId });
    if (revoked) return 0;
    throw new Error(`unknown access ${accessId}; \`procwire access list\` lists the ids`);
  },
});

function columns(nowMs: number): TableColumn<AccessEntry>[] {
  return [
    { title: "ID", cell: ({ accessId, isCurrent }) => `${printableLine(accessId)}${isCurrent ? "*" : ""}` },
    { title: "PRINCIPAL", cell: ({ principal }) => printableLine(principal), minWidth: 8 },
    { title: "FROM", cell: ({ peer, device }) => printableLine(peer || device || "-"), minWidth: 8 },
    { title: "AGE", cell: ({ sinceMs }) => formatAge(nowMs - sinceMs) },
    { title: "IDLE", cell: ({ lastUsedAtMs }) => formatAge(nowMs - lastUsedAtMs) },
    {
      title: "EXPIRES",
      cell: ({ expiresAtMs }) => (expiresAtMs === undefined ? "-" : formatAge(Math.max(0, expiresAtMs - nowMs))),
    },
    { title: "TOKEN", cell: ({ tokenId }) => printableLine(tokenId ?? "-"), isOptional: true },
  ];
}

export const command: Command = defineSubcommands("access", HELP, { list, revoke });
