import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { parse } from "smol-toml";
import { errorMessage } from "../../base/error-message.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { checkArgument, text as pathText } from "../../exec/options/option-schema.ts";
import { omitUnsetVariables } from "../../exec/run/run-program.ts";
import { array, boolean, f64, type Infer, map, object, optional, string } from "../../protocol/schema.ts";
import type { EnvironmentTarget } from "./environment.ts";
import type { ExecServerLaunchCommand } from "./spawn-exec-server.ts";

/** Id of the local host in a list of environments. */
export const LOCAL_ENVIRONMENT_ID = "local";

/** An environment with its id. */
export interface NamedEnvironment {
  id: string;
  target: EnvironmentTarget;
  connectTimeoutMs?: number | undefined;
  initializeTimeoutMs?: number | undefined;
}

export interface Environments {
  environments: NamedEnvironment[];
  /** Id of the default environment; null if the file says `none`. */
  defaultId: string | null;
}

const entry = object("Environment", () => ({
  id: string,
  url: optional(string),
  program: optional(string),
  args: optional(array(string)),
  env: optional(map(string)),
  cwd: optional(string),
  connect_timeout_sec: optional(f64),
  initialize_timeout_sec: optional(f64),
}));

const file = object("Environments", () => ({
  default: optional(string),
  include_local: optional(boolean),
  environments: optional(array(entry)),
}));

/**
 * Reads Codex's `environments.toml`: each entry has a `url`, or a `program` whose stdio is the transport.
 *
 * @example
 * const { environments, defaultId } = await readEnvironmentsToml(`${codexHome}/environments.toml`);
 */
export async function readEnvironmentsToml(path: string): Promise<Environments> {
  checkArgument("readEnvironmentsToml", "path", path, pathText);
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (cause) {
    throw new Error(`failed to read environment config \`${path}\`: ${errorMessage(cause)}`, { cause });
  }
  try {
    return parseEnvironmentsToml(text, dirname(resolve(path)));
  } catch (cause) {
    throw new Error(`failed to parse environment config \`${path}\`: ${errorMessage(cause)}`, { cause });
  }
}

/** Parses the file; a relative `cwd` is relative to `directory`. */
export function parseEnvironmentsToml(text: string, directory: string): Environments {
  const parsed = file.decode(parse(text));
  const includesLocal = parsed.include_local ?? true;
  const environments: NamedEnvironment[] = includesLocal ? [{ id: LOCAL_ENVIRONMENT_ID, target: null }] : [];
  for (const item of parsed.environments ?? []) {
    checkId(item.id);
    if (environments.some(({ id }) => id === item.id)) throw new Error(`environment id \`${item.id}\` is duplicated`);
    environments.push(readEntry(item, directory));
  }
  return { environments, defaultId: readDefault(parsed.default, environments) };
}

function readEntry(item: Infer<typeof entry>, directory: string): NamedEnvironment {
  const { id, connect_timeout_sec: connectSec, initialize_timeout_sec: initializeSec } = item;
  return omitUndefined<NamedEnvironment>({
    id,
    target: readTarget(item, directory),
    connectTimeoutMs: connectSec === undefined ? undefined : milliseconds(id, connectSec),
    initializeTimeoutMs: initializeSec === undefined ? undefined : milliseconds(id, initializeSec),
  });
}

function readTarget(item: Infer<typeof entry>, directory: string): EnvironmentTarget {
  const { id, url, program, args, env, cwd, connect_timeout_sec: connectSec } = item;
  if ((url === undefined) === (program === undefined))
    throw new Error(`environment \`${id}\` must set exactly one of url or program`);
  if (url !== undefined) {
    if (args || env || cwd !== undefined) throw new Error(`environment \`${id}\` args, env, and cwd require program`);
    const trimmed = url.trim();
    if (!/^wss?:\/\//.test(trimmed)) throw new Error(`environment url \`${trimmed}\` must use ws:// or wss://`);
    return { url: trimmed };
  }
  if (connectSec !== undefined) throw new Error(`environment \`${id}\` connect_timeout_sec requires url`);
  const trimmed = (program ?? "").trim();
  if (trimmed === "") throw new Error(`environment \`${id}\` program cannot be empty`);
  return omitUndefined<ExecServerLaunchCommand>({
    program: trimmed,
    args: args ?? [],
    // Added to this process's environment, as for any child.
    env: env && omitUnsetVariables({ ...process.env, ...env }),
    cwd: cwd === undefined ? undefined : resolve(directory, cwd),
  });
}

function readDefault(text: string | undefined, environments: NamedEnvironment[]): string | null {
  const id = text?.trim();
  if (id === "") throw new Error("default environment id cannot be empty");
  if (id === undefined)
    return environments.some((environment) => environment.id === LOCAL_ENVIRONMENT_ID) ? LOCAL_ENVIRONMENT_ID : null;
  if (id.toLowerCase() === "none") return null;
  if (!environments.some((environment) => environment.id === id))
    throw new Error(`default environment \`${id}\` is not configured`);
  return id;
}

/** Throws unless the id follows Codex's rules. */
function checkId(id: string): void {
  if (id.trim() === "") throw new Error("environment id cannot be empty");
  if (id === LOCAL_ENVIRONMENT_ID || id.toLowerCase() === "none")
    throw new Error(`environment id \`${id}\` is reserved`);
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(id))
    throw new Error(`environment id \`${id}\` must be at most 64 ASCII letters, numbers, '-' or '_', without blanks`);
}

function milliseconds(id: string, seconds: number): number {
  if (!Number.isFinite(seconds) || seconds < 0)
    throw new Error(`environment \`${id}\` has a negative or infinite timeout`);
  return Math.round(seconds * 1000);
}
