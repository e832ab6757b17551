import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";
import { DEFAULT_TERMINAL_SIZE, type StartParams } from "../exec/exec-process.ts";
import { internalError, invalidParams } from "../protocol/errors.ts";
import type { ChildSpec } from "./child.ts";
import { spawnErrorFromRequest } from "./spawn-error.ts";

/** Returns the child that a start describes. Throws the errors of Codex for values that no child can have. */
export function childSpecOf(params: StartParams, env: Record<string, string>): ChildSpec {
  const [file, ...args] = params.argv;
  if (file === undefined) throw invalidParams("argv must not be empty");
  const reject = (message: string) => {
    throw internalError(message, { cause: spawnErrorFromRequest(message, file) });
  };
  if (file === "") reject(`missing program for ${params.tty ? "PTY" : "pipe"} spawn`);
  const argv0 = params.arg0 ?? file;
  if (hasNul(argv0) || params.argv.some(hasNul)) reject("nul byte found in provided data");
  for (const [name, value] of Object.entries(env))
    if (hasNul(name) || hasNul(value)) reject("data provided contains a nul byte");
  const cwd = nativePath(params.cwd);
  if (hasNul(cwd)) reject("nul byte found in provided data");
  return {
    file,
    argv: [argv0, ...args],
    cwd,
    env,
    terminal: params.tty ? (params.size ?? DEFAULT_TERMINAL_SIZE) : null,
    pipeStdin: params.pipeStdin ?? false,
    descriptors: [],
  };
}

const hasNul = (text: string) => text.includes("\0");

function nativePath(cwd: string): string {
  if (isAbsolute(cwd)) return cwd;
  if (!/^file:/i.test(cwd)) throw invalidParams(`cwd \`${cwd}\` must be an absolute path or a file: URI`);
  try {
    return fileURLToPath(cwd);
  } catch {
    throw invalidParams(
      `cwd URI \`${cwd}\` is not valid on this exec-server host: '${cwd}' is invalid on '${process.platform}'`,
    );
  }
}
