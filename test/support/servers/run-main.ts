import { spawn } from "node:child_process";
import path from "node:path";

const COMPILE_CACHE = path.join(import.meta.dirname, "../system/compile-cache.mjs");
const ENTRY = path.join(import.meta.dirname, "run-main-entry.ts");

/**
 * Runs many command lines in one child process. Meant for commands that exit at once, because one process start per
 * command would dominate their time.
 */
export async function runMain(
  commandLines: readonly (readonly string[])[],
  options: { cwd: string; env?: Record<string, string> },
): Promise<{ code: number; stdout: string; stderr: string }[]> {
  const child = spawn(process.execPath, [`--import=${COMPILE_CACHE}`, ENTRY], {
    cwd: options.cwd,
    env: {
      PATH: process.env.PATH ?? "",
      HOME: options.cwd,
      ...options.env,
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.stdin.end(JSON.stringify(commandLines));
  let output = "";
  for await (const chunk of child.stdout.setEncoding("utf8")) output += String(chunk);
  return JSON.parse(output);
}
