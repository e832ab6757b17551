import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";

/** Measurements of one run of the client, by name; `clientCpu` is its own processor time in seconds. */
export type Measured = Record<string, number>;

/** Called when the client has reached a state that the caller measures. The client continues once this resolves. */
export type OnPhase = (phase: string) => Promise<void> | void;

/** Timeout of a scenario, longer than any scenario takes on a busy machine. */
const CLIENT_TIMEOUT_MS = 180_000;

const SOURCES = join(import.meta.dirname, "client");
const BUILD = join(import.meta.dirname, "../node_modules/.cache/procwire-bench");

/** Compiles the client if it is missing or older than its sources. */
export function buildClient(): string {
  const binary = join(BUILD, "bench-client");
  const newest = Math.max(...readdirSync(SOURCES).map((name) => statSync(join(SOURCES, name)).mtimeMs));
  if ((statSync(binary, { throwIfNoEntry: false })?.mtimeMs ?? 0) > newest) return binary;
  mkdirSync(BUILD, { recursive: true });
  const flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-pthread"];
  const compiler = process.env.CXX ?? "c++";
  execFileSync(compiler, [...flags, join(SOURCES, "main.cc"), "-o", binary, "-lutil"], { stdio: "inherit" });
  return binary;
}

/** Runs one scenario. Rejects if the client reports a wrong response of the server. */
export async function runClient(
  binary: string,
  argv: string[],
  onPhase?: OnPhase,
  env = process.env,
): Promise<Measured> {
  const child = spawn(binary, argv, { stdio: ["pipe", "pipe", "pipe"], timeout: CLIENT_TIMEOUT_MS, env });
  const errors = text(child.stderr);
  const ended = new Promise<string | number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(code ?? signal));
  });
  let measured: Measured | null = null;
  for await (const line of createInterface({ input: child.stdout })) {
    const parsed: Record<string, unknown> = JSON.parse(line);
    if (typeof parsed.phase === "string") {
      await onPhase?.(parsed.phase);
      child.stdin.write("\n");
    } else {
      const numbers = Object.entries(parsed).filter((entry): entry is [string, number] => typeof entry[1] === "number");
      measured = Object.fromEntries(numbers);
    }
  }
  const code = await ended;
  if (code !== 0 || measured === null) {
    throw new Error(`bench-client ${argv.join(" ")} ended with ${code}: ${(await errors).trim()}`);
  }
  return measured;
}
