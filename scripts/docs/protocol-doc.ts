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
  const sections = GENERATIONS.flatMap(([generation, title, text]) => [
    `## ${title}`,
    text,
    ...entriesOf(generation, types),
  ]);
  return `${[INTRODUCTION, ...sections, typesSection(types)].join("\n\n")}\n`;
}

const GENERATIONS: [generation: ProtocolVersion, title: string, text: string][] = [
  [
    "current",
    "The current generation",
    "As Codex 0.166.0 speaks it. Processes belong to a session and have ids the client chooses.",
  ],
  [
    "ours",
    "What procwire adds",
    "Additive: a client that asks for nothing sees exactly the messages of the current generation.",
  ],
  [
    "v0",
    "The first generation",
    "The handshake of every generation, and `command/exec`: the server chooses the ids (`session-1`, `session-2`, …), and the processes die with their connection.",
  ],
];

const INTRODUCTION = `# The protocol

<!-- Written by \`npm run protocol\` from src/protocol/methods.ts; change it there. -->

JSON-RPC without the \`jsonrpc\` member, protocol version \`${PROTOCOL_VERSION}\`. One message a line over stdio, one message a
WebSocket message over \`ws://IP:PORT\` and \`unix://PATH\` (the same WebSocket over a unix socket). Text or binary in, text out.

| message | members |
|---|---|
| request | \`{id, method, params?, trace?}\`; the id is a string or a whole number of 64 bits and comes back as it was |
| answer | \`{id, result}\` or \`{error: {code, message}, id}\` |
| notification | \`{method, params?}\` |

Unknown members are ignored. An optional field may be absent or null. \`bytes\` are base64 (standard alphabet, padded), paths
are \`file:\` URIs, times are milliseconds.

What cannot be read at all is answered with id -1 and the connection lives. A notification that is not listed here,
\`initialized\` before \`initialize\`, and an answer nobody asked for end the connection; its session is only detached.

**Handshake**: \`initialize\`, its answer, then the notification \`initialized\`. Checks come in this order: method known, params
decode, handshake done, handler. \`initialize {extensions: […]}\` asks for extensions (${EXTENSIONS.map((name) => `\`${name}\``).join(", ")}); only what the answer names is used.

**Order**: requests start in the order they came and do not wait for each other; answers may come in another order. Start,
write, closeStdin and resize of one process keep their order, changes of files keep theirs within a session, blocks within
a handle. No notification of a process comes before the answer to its start.

**Sequence**: \`process/output\`, \`process/exited\` and \`process/closed\` of a process share one sequence from 1 without gaps.
Output the process wrote comes before \`exited\`; \`closed\` comes last, when nobody holds its streams any more.

**Sessions**: a connection that is lost, however, detaches its session. Within the server's time (30 s unless told otherwise)
\`initialize {resumeSessionId}\` comes back to it; what was missed is read with \`process/read {afterSeq}\`. With \`takeOver\` a
session that still has a connection changes hands. Under the extension \`outputAck\` output is kept until \`process/ack\`
confirms it, and the process is held back instead.

| code | meaning |
|---|---|
| ${ErrorCode.invalidRequest} | invalid request: unknown method, handshake, unknown or duplicate process, a limit, an unreadable message |
| ${ErrorCode.invalidParams} | params that do not decode, or that cannot be carried out on this host |
| ${ErrorCode.internal} | the system refused: a program that cannot be started, a file that cannot be written |
| ${ErrorCode.notFound} | no such file, no such file handle |
| ${ErrorCode.sessionAttached} | the session is attached to another connection |
| ${ErrorCode.beingReplaced} | another server is taking this one's place: nothing was started; ask on the next connection |`;

function entriesOf(generation: ProtocolVersion, types: Map<string, Schema<unknown>>): string[] {
  const sections: string[] = [];
  for (const [name, { version: of, family, params, result, doc }] of Object.entries(methods)) {
    if (of !== generation) continue;
    collect(params, types);
    collect(result, types);
    const gate = family === null ? "May be called before the handshake is done." : "";
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
  for (const [side, name, { version: of, params, doc }] of notifications) {
    if (of !== generation) continue;
    collect(params, types);
    sections.push(
      [`### ${name}`, `Notification of the ${side}. ${doc}`, `Params: ${shape(params)}`].join("\n\n"),
    );
  }
  return sections;
}

/** The fields of a struct as a table, anything else by its name. */
function shape(schema: Schema<unknown>): string {
  const { fields } = schema;
  if (!fields) return schema.doc;
  const rows = Object.entries(fields).map(
    ([name, field]) => `| \`${name}\` | ${typeOf(field)} | ${field.isOptional ? "" : "yes"} |`,
  );
  return [`\`${schema.doc}\``, "", "| field | type | required |", "|---|---|---|", ...rows].join("\n");
}

/** A type, with links from the structs in it to their descriptions. */
function typeOf(schema: Schema<unknown>): string {
  const struct = structIn(schema);
  if (!struct) return schema.doc;
  return schema.doc.replace(struct.doc, `[${struct.doc}](#${struct.doc.toLowerCase()})`);
}

function structIn(schema: Schema<unknown>): Schema<unknown> | null {
  if (schema.fields) return schema;
  return schema.item ? structIn(schema.item) : null;
}

/** Every struct that is part of another one is described once, at the end. */
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
