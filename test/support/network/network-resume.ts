import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { WireClient, type WireMessage, webSocketWire } from "../servers/raw-connection.ts";
import { makePipe, scratchDirectory } from "../servers/serve.ts";
import { policy } from "./network-config.ts";

export interface ResumedQuestions {
  responses: Record<string, string>;
  /** Questions and decisions on the first and on the second connection. */
  messages: WireMessage[][];
}

/** Sends a request for each line of the first pipe, and writes the response to the second pipe. */
const REQUESTS = 'while read -r url <"$0"; do curl -s -i "$url" >"$1"; done';

/** Loses the connection while a question is open, asks while no client is attached, and asks again after the resume. */
export async function resumeWithQuestion(url: string): Promise<ResumedQuestions> {
  using scratch = scratchDirectory();
  const pipes = ["requests", "responses"].map((name) => join(scratch.path, name));
  const [requests = "", responses = ""] = pipes;
  pipes.forEach(makePipe);
  const request = async () => {
    await writeFile(requests, "http://other.test/\n");
    return readFile(responses, "latin1");
  };
  const first = new WireClient(await webSocketWire(url));
  await first.handshake();
  const networkProxy = { proxy: policy({}), policyDecisionTimeoutMs: 30_000 };
  await first.start("resumed", ["/bin/sh", "-c", REQUESTS, ...pipes], {
    networkProxy,
    env: { PATH: process.env.PATH },
  });
  const asked = request();
  await first.notification("network/policyRequest", "resumed");
  first.cut();
  const open = await asked;
  const detached = await request();
  await using second = new WireClient(await webSocketWire(url));
  await second.handshake({ resumeSessionId: first.sessionId });
  const askedAgain = request();
  const { id } = await second.notification("network/policyRequest", "resumed");
  second.raw(JSON.stringify({ id, result: { decision: { type: "allow" } } }));
  const resumed = await askedAgain;
  await second.notification("network/policyDecision", "resumed");
  await second.call("process/terminate", { processId: "resumed" });
  await second.notification("process/closed", "resumed");
  const network = ({ messages }: WireClient) => messages.filter(({ method }) => method?.startsWith("network/"));
  return {
    responses: { "open question": open, "no client": detached, "after the resume": resumed },
    messages: [network(first), network(second)],
  };
}
