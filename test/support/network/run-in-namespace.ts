import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { ResumedQuestions } from "./network-resume.ts";
import { parseResponse } from "./proxy-client.ts";

const SCRIPT = fileURLToPath(new URL("network-namespace.ts", import.meta.url));

export interface NamespaceResult {
  /** Responses by the name of their step, without dates, ports and framing. */
  responses: Record<string, unknown>;
  asked: Record<string, unknown>;
  limited: Record<string, unknown>;
  /** Responses to requests for review domains, with and without questions. */
  reviewed: Record<string, unknown>;
  unasked: Record<string, unknown>;
  /** Responses to requests on one connection. */
  kept: Record<string, unknown>;
  /** A session that a client resumes after the loss of its connection with an open question. */
  resumed: { responses: Record<string, unknown>; messages: unknown };
  /** Responses, and requests that the upstream proxy received, by the variables of the server. */
  upstream: Record<string, { responses: Record<string, unknown>; requests: string[] }>;
  decisions: unknown[];
  /** Names that the server looked up. */
  names: string[];
}

/** Runs all steps on the server that this command starts. Requires root. */
export async function runInNamespace(command: readonly string[]): Promise<NamespaceResult> {
  const args = ["-n", "-m", "--propagation", "private", process.execPath, SCRIPT, ...command];
  const { stdout } = await promisify(execFile)("unshare", args, { timeout: 240_000, maxBuffer: 1 << 24 });
  const { resumed, upstream, decisions, queries, ...probes }: ProbedServer = JSON.parse(stdout);
  return {
    responses: normalizeAll(probes.responses),
    asked: normalizeAll(probes.asked),
    limited: normalizeAll(probes.limited),
    reviewed: normalizeAll(probes.reviewed),
    unasked: normalizeAll(probes.unasked),
    kept: normalizeAll(probes.kept),
    resumed: {
      responses: normalizeAll(resumed.responses),
      messages: resumed.messages.map((messages) =>
        messages.map(({ id, method, params }) => ({ id, method, params: withoutTimes(params) })),
      ),
    },
    upstream: Object.fromEntries(
      Object.entries(upstream).map(([name, { responses, requests }]) => [
        name,
        { responses: normalizeAll(responses), requests },
      ]),
    ),
    decisions: decisions.map(withoutTimes),
    names: [...new Set<string>(queries.map((query: string) => query.split(" ")[1] ?? ""))].sort(),
  };
}

/** Output of the script. */
type ProbedServer = Record<"responses" | "asked" | "limited" | "reviewed" | "unasked" | "kept", Responses> & {
  resumed: ResumedQuestions;
  upstream: Record<string, { responses: Responses; requests: string[] }>;
  decisions: Record<string, unknown>[];
  queries: string[];
};

type Responses = Record<string, string>;

/** Removes the fields that differ from run to run. */
function withoutTimes({ timestamp: _, client: __, ...fields }: Record<string, unknown> = {}): Record<string, unknown> {
  return fields;
}

function normalizeAll(responses: Record<string, string>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(responses).map(([name, text]) => [name, normalize(text)]));
}

function normalize(text: string): unknown {
  if (text.startsWith("<")) return text;
  // The local port in the reply of SOCKS5 differs from run to run.
  if (!text.startsWith("HTTP/"))
    return Buffer.from(text, "latin1")
      .toString("hex")
      .replace(/^(0500050000015db8d822).{4}/, "$1");
  const { status, headers, body } = parseResponse(text);
  const isChunked = headers["transfer-encoding"] === "chunked";
  const content = isChunked ? body.replace(/^[\da-f]+\r\n(.*)\r\n0\r\n\r\n$/is, "$1") : body;
  return { status, error: headers["x-proxy-error"], type: headers["content-type"], content };
}
