/**
 * Makes many streamed calls with one client and prints their cost. Started by responses-clients.ts:
 *
 *   node bench/fanout/responses-caller.ts ours|official URL CALLS WIDTH
 */

import path from "node:path";
import { pathToFileURL } from "node:url";
import type { ClientCost } from "./responses-clients.ts";

const [client = "", url = "", callsText = "", widthText = ""] = process.argv.slice(2);
const TEXT = [
  "You are processing one item for a generic agent job.",
  "Job ID: job",
  "Item ID: row-1",
  "",
  "Task instruction:",
  "Write a playful 2-line poem about the cat named Tom.",
].join("\n");
const INPUT = [{ type: "message", role: "user", content: [{ type: "input_text", text: TEXT }] }];
const PARAMETERS = { type: "object", properties: { result: { type: "object" } } };

const loadedAt = performance.now();
const call = client === "ours" ? await ourClient() : await officialClient();
const loadMs = performance.now() - loadedAt;

const startedAt = performance.now();
const startedCpu = process.cpuUsage();
let left = Number(callsText);
await Promise.all(
  Array.from({ length: Number(widthText) }, async () => {
    while (left-- > 0) {
      if (!(await call())) throw new Error("an answer without its function call");
    }
  }),
);
const { user, system } = process.cpuUsage(startedCpu);
const cost: ClientCost = {
  loadMs,
  wallSeconds: (performance.now() - startedAt) / 1000,
  cpuSeconds: (user + system) / 1e6,
  peakRssMb: process.resourceUsage().maxRSS / 1024,
};
process.stdout.write(`${JSON.stringify(cost)}\n`, () => process.exit());

/** Resolves to true if the response contains the function call. */
type Call = () => Promise<boolean>;

/** procwire's client with retries and the rate limiter, as the fan-out uses it. */
async function ourClient(): Promise<Call> {
  const [{ createHttpModelApi }, { responsesDialect }, { createRowCaller }] = await Promise.all([
    import("../../src/agent/api/http-model-api.ts"),
    import("../../src/agent/api/responses-dialect.ts"),
    import("../../src/fanout/run/row-resources.ts"),
  ]);
  const api = createHttpModelApi(responsesDialect, { baseUrl: url, apiKey: "dummy" });
  const { callModel } = createRowCaller(api, { width: Number(widthText) });
  const { signal } = new AbortController();
  const request = {
    model: "gpt-5",
    instructions: "Report once.",
    input: INPUT,
    tools: [{ name: "report_agent_job_result", description: "Reports.", parameters: PARAMETERS }],
    parallelToolCalls: false,
    cacheKey: "job",
  };
  return async () => (await callModel(request, signal)).items.some((item) => item.type === "functionCall");
}

/**
 * The used part of the official client. The compiler has no types of it, because the client is installed on demand.
 */
interface OfficialClient {
  responses: {
    create(body: object): Promise<AsyncIterable<{ type: string; item?: { type: string } }>>;
  };
}

async function officialClient(): Promise<Call> {
  const entry = path.join(import.meta.dirname, "official-client/node_modules/openai/index.mjs");
  const { default: OpenAI }: { default: new (options: object) => OfficialClient } = await import(
    pathToFileURL(entry).href
  );
  const openai = new OpenAI({ baseURL: url, apiKey: "dummy" });
  const body = {
    model: "gpt-5",
    instructions: "Report once.",
    input: INPUT,
    tools: [
      {
        type: "function",
        name: "report_agent_job_result",
        description: "Reports.",
        strict: false,
        parameters: PARAMETERS,
      },
    ],
    store: false,
    stream: true,
    prompt_cache_key: "job",
  };
  return async () => {
    let isCalled = false;
    for await (const event of await openai.responses.create(body)) {
      if (event.type === "response.output_item.done" && event.item?.type === "function_call") isCalled = true;
    }
    return isCalled;
  };
}
