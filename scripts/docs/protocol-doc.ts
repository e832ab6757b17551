/** `npm run protocol`: writes PROTOCOL.md from the method table, so that the document cannot differ from the code. */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ErrorCode } from "../../src/protocol/errors.ts";
import {
  clientNotifications,
  EXTENSIONS,
  methods,
  PROTOCOL_VERSION,
  type ProtocolVersion,
  serverNotifications,
} from "../../src/protocol/methods.ts";
import type { Schema } from "../../src/protocol/schema.ts";

export const PROTOCOL_DOCUMENT = fileURLToPath(new URL("../../PROTOCOL.md", import.meta.url));

export function protocolDocument(): string {
  const types = new Map<string, Schema<unknown>>();
  const sections = VERSIONS.flatMap(([version, title, text]) => [
    `## ${title}`,
    text,
    ...versionEntries(version, types),
  ]);
  return `${[INTRODUCTION, ...sections, typesSection(types)].join("\n\n")}\n`;
}

const VERSIONS: [version: ProtocolVersion, title: string, text: string][] = [
  [
    "current",
    "Codex 0.166.0",
    "The messages of the Codex exec-server 0.166.0. Processes belong to a session, and the client chooses their ids.",
  ],
  [
    "ours",
    "Additions of procwire",
    "A client that requests no extension receives exactly the messages of Codex 0.166.0.",
  ],
  [
    "v0",
    "Version 0",
    "The handshake of all versions, and `command/exec`: the server chooses the ids (`session-1`, `session-2`, …), and processes end with their connection.",
  ],
];

const INTRODUCTION = `# Protocol

<!-- Written by \`npm run protocol\` from src/protocol/methods.ts; change it there. -->

JSON-RPC without the \`jsonrpc\` member, protocol version \`${PROTOCOL_VERSION}\`: one message per line on stdio, one per
WebSocket message on \`ws://IP:PORT\` and \`unix://PATH\` (WebSocket over a Unix socket). The server accepts text and binary
messages and sends text.

| message | members |
|---|---|
| request | \`{id, method, params?, trace?}\`; the id is a string or a 64-bit integer, and the response repeats it |
| response | \`{id, result}\` or \`{error: {code, message}, id}\` |
| notification | \`{method, params?}\` |

The receiver ignores unknown members. An optional field may be absent or null. \`bytes\` are base64 (standard alphabet,
padded), paths are \`file:\` URIs, times are milliseconds.

The server answers an unreadable message with id -1, and the connection continues. An unlisted notification,
\`initialized\` before \`initialize\`, and a response without a request close the connection; its session is detached.

**Handshake**: \`initialize\`, its response, then the notification \`initialized\`. The server checks in this order: method known,
params valid, handshake done, handler. \`initialize {extensions: […]}\` requests extensions (${EXTENSIONS.map((name) => `\`${name}\``).join(", ")}); the response lists the active ones.

**Order**: requests start in the order of arrival and run concurrently; responses may arrive in another order. Start, write,
closeStdin and resize of one process keep their order. So do file changes of one session, and blocks of one file handle. No
notification of a process precedes the response to its start.

**Sequence**: \`process/output\`, \`process/exited\` and \`process/closed\` of a process share one sequence from 1 without holes.
\`exited\` follows all output of the leader. \`closed\` is last, when all writers of its streams are gone.

**Sessions**: a lost connection detaches its session. Within the session TTL (default: 30 s), \`initialize {resumeSessionId}\`
resumes it, and \`process/read {afterSeq}\` returns the missed output. With \`takeOver\`, a client resumes a session that still
has a connection. With the extension \`outputAck\`, the server retains output until \`process/ack\` and pauses the process
instead of evicting.

| code | meaning |
|---|---|
| ${ErrorCode.invalidRequest} | invalid request: unknown method, missing handshake, unknown or duplicate process, exceeded limit, unreadable message |
| ${ErrorCode.invalidParams} | invalid params, or params that this host does not support |
| ${ErrorCode.internal} | system error, for example a failed start or a failed write to a file |
| ${ErrorCode.notFound} | no such file or file handle |
| ${ErrorCode.sessionAttached} | another connection has the session |
| ${ErrorCode.beingReplaced} | hot restart: nothing was started; repeat the request on the next connection |`;

function versionEntries(version: ProtocolVersion, types: Map<string, Schema<unknown>>): string[] {
  const sections: string[] = [];
  for (const [name, { version: added, family, params, result, doc }] of Object.entries(methods)) {
    if (added !== version) continue;
    collect(params, types);
    collect(result, types);
    const gate = family === null ? "Allowed before the handshake." : "";
    sections.push(
      [
        `### ${name}`,
        [doc, gate].filter((text) => text !== "").join(" "),
        `Params: ${shape(params)}`,
        `Result: ${shape(result)}`,
      ].join("\n\n"),
    );
  }
  const notifications = [
    ...Object.entries(serverNotifications).map(([name, entry]) => ["server", name, entry] as const),
    ...Object.entries(clientNotifications).map(([name, entry]) => ["client", name, entry] as const),
  ];
  for (const [side, name, { version: added, params, doc }] of notifications) {
    if (added !== version) continue;
    collect(params, types);
    sections.push(
      [`### ${name}`, `Notification from the ${side}. ${doc}`, `Params: ${shape(params)}`].join("\n\n"),
    );
  }
  return sections;
}

/** Returns the fields of a struct as a table, and every other type by its name. */
function shape(schema: Schema<unknown>): string {
  const { fields } = schema;
  if (!fields) return schema.doc;
  const rows = Object.entries(fields).map(
    ([name, field]) => `| \`${name}\` | ${linkedType(field)} | ${field.isOptional ? "" : "yes"} |`,
  );
  return [`\`${schema.doc}\``, "", "| field | type | required |", "|---|---|---|", ...rows].join("\n");
}

/** Returns a type, with a link to the description of its struct. */
function linkedType(schema: Schema<unknown>): string {
  const struct = structIn(schema);
  if (!struct) return schema.doc;
  return schema.doc.replace(struct.doc, `[${struct.doc}](#${struct.doc.toLowerCase()})`);
}

function structIn(schema: Schema<unknown>): Schema<unknown> | null {
  if (schema.fields) return schema;
  return schema.item ? structIn(schema.item) : null;
}

/** Collects the structs that are part of another one; the last section describes each once. */
function collect(schema: Schema<unknown>, types: Map<string, Schema<unknown>>): void {
  for (const field of Object.values(schema.fields ?? {})) {
    const struct = structIn(field);
    if (!struct) continue;
    types.set(struct.doc, struct);
    collect(struct, types);
  }
}

function typesSection(types: Map<string, Schema<unknown>>): string {
  const names = [...types.keys()].sort();
  const sections = names.map((name) => {
    const schema = types.get(name);
    return schema ? `### ${name}\n\n${shape(schema)}` : "";
  });
  return ["## Types", ...sections].join("\n\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(PROTOCOL_DOCUMENT, protocolDocument());
