/** Runs the real Codex CLI against a procwire server, with a mock model that a test scripts. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  completed,
  created,
  functionCall,
  type MockRequest,
  message,
  startMockResponses,
} from "../test/support/models/mock-responses.ts";

const CODEX = fileURLToPath(new URL("./node_modules/.bin/codex", import.meta.url));

/** Why the real CLI cannot run on this host, or false. */
export const noCodex: string | false = existsSync(CODEX)
  ? false
  : "SKIPPED: the real Codex CLI is not installed; run `npm ci --prefix interop`";

/** A run takes some 2 s; a longer run hangs. */
const RUN_TIMEOUT_MS = 60_000;

export interface ModelCall {
  name: string;
  args: Record<string, unknown>;
}

/** A call, or a function that returns the call from the results of earlier calls. */
export type NextCall = ModelCall | ((outputs: readonly string[]) => ModelCall | Promise<ModelCall>);

/** Returns the next call from the results so far, or null at the end. */
export type Plan = (outputs: readonly string[]) => ModelCall | null;

/** URL of a server, or the content of `environments.toml`. */
export type CodexTarget = string | { environments: string };

export interface CodexRun {
  exitCode: number | null;
  /** The result that the model received for each of its calls, in call order. */
  outputs: string[];
  /** The first request to the model, with instructions and tools. */
  firstRequest: Record<string, unknown>;
  stderr: string;
}

/** A temporary home and workspace, not below /tmp, which a sandbox may leave writable. */
export function codexHome(): Disposable & { home: string; workspace: string } {
  const home = realpathSync(mkdtempSync("/var/tmp/procwire-codex-"));
  const workspace = join(home, "workspace");
  mkdirSync(join(home, ".codex"), { recursive: true });
  mkdirSync(workspace);
  return {
    home,
    workspace,
    [Symbol.dispose]: () => rmSync(home, { recursive: true, force: true, maxRetries: 10 }),
  };
}

/** Runs Codex with a model that makes `calls` one after the other, or follows a plan, and then finishes. */
export async function runCodex(
  place: { home: string; workspace: string },
  target: CodexTarget,
  calls: readonly NextCall[] | Plan,
  flags: readonly string[],
  profile = "",
): Promise<CodexRun> {
  const model = await startMockResponses(async ({ body }) => {
    const outputs = outputsIn(body);
    const done = outputs.length;
    const planned = typeof calls === "function" ? calls(outputs) : calls[done];
    const next = typeof planned === "function" ? await planned(outputs) : planned;
    const event = next ? functionCall(`call-${done}`, next.name, next.args) : message("done");
    return { type: "sse", events: [created(), event, completed()] };
  });
  try {
    writeFileSync(join(place.home, ".codex", "config.toml"), configFor(model.url, profile));
    if (typeof target !== "string") writeFileSync(join(place.home, ".codex", "environments.toml"), target.environments);
    const args = ["exec", "--json", "--skip-git-repo-check", "-C", place.workspace, ...flags, "go"];
    const child = spawn(CODEX, args, {
      stdio: ["ignore", "ignore", "pipe"],
      timeout: RUN_TIMEOUT_MS,
      env: {
        PATH: process.env.PATH ?? "",
        HOME: place.home,
        CODEX_HOME: join(place.home, ".codex"),
        MODEL_KEY: "none",
        ...(typeof target === "string" && { CODEX_EXEC_SERVER_URL: target }),
      },
    });
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const [exitCode] = await once(child, "close");
    const last: MockRequest | undefined = model.requests.at(-1);
    const firstRequest = model.requests[0]?.body ?? {};
    return { exitCode, outputs: outputsIn(last?.body ?? {}), firstRequest, stderr };
  } finally {
    await model.close();
  }
}

/** Permission profile with a managed network and these domains, as TOML. */
export function networkProfile(domains: Readonly<Record<string, "allow" | "deny">>): string {
  return `default_permissions = "net"
[features]
network_proxy = true
unified_exec = true
[permissions.net]
extends = ":workspace"
[permissions.net.network]
enabled = true
[permissions.net.network.domains]
${Object.entries(domains)
  .map(([domain, permission]) => `"${domain}" = "${permission}"\n`)
  .join("")}`;
}

/** `profile` may have top-level settings, then tables. */
export function configFor(modelUrl: string, profile = ""): string {
  return `model = "gpt-5"
model_provider = "mock"
${profile}[model_providers.mock]
name = "mock"
base_url = "${modelUrl}"
wire_api = "responses"
env_key = "MODEL_KEY"
${profile.includes("[features]") ? "" : "[features]\nunified_exec = true\n"}`;
}

/** The results of calls in a request to the model. */
function outputsIn(body: Record<string, unknown>): string[] {
  const input: unknown[] = Array.isArray(body.input) ? body.input : [];
  return input.flatMap((item) => {
    if (typeof item !== "object" || item === null || !("type" in item) || !("output" in item)) return [];
    return item.type === "function_call_output" ? [String(item.output)] : [];
  });
}
