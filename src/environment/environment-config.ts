import { lstat } from "node:fs/promises";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { isObject } from "../base/type-guards.ts";
import { internalError, invalidParams } from "../protocol/errors.ts";
import type { ParamsOf } from "../protocol/methods.ts";
import { pathFromUri, uriFromPath } from "../protocol/path-uri.ts";
import { homeDirectory } from "./environment-info.ts";
import { readTextFile } from "./read-text-file.ts";

export interface ConfigLayers {
  /** From the weakest to the strongest. */
  layers: { source: string; baseDir: string; toml: string }[];
  /** The index for a layer that the client obtained elsewhere: after the system layer. */
  cloudInsertionIndex: number;
}

export interface EnvironmentConfig {
  userHomeDir: string;
  codexHomeDir: string;
  hostname: string;
  config: ConfigLayers;
  requirements: ConfigLayers;
}

export interface ConfigLocations {
  env: NodeJS.ProcessEnv;
  systemDirectory: string;
}

/**
 * Returns the requested parts of an agent's configuration on this host: of the system, of the user, and of the project
 * around `cwd` from its root down. Project files are read only if the user's file trusts the project.
 */
export async function readEnvironmentConfig(
  params: ParamsOf<"environmentConfig/read">,
  locations: ConfigLocations = { env: process.env, systemDirectory: "/etc/codex" },
): Promise<EnvironmentConfig> {
  const keys = [...params.configPaths, ...params.requirementsPaths];
  if (keys.length === 0) throw invalidParams("at least one config or requirements path is required");
  if (keys.some((path) => path.length === 0)) {
    throw invalidParams("TOML paths must contain at least one key segment");
  }
  const cwd = pathFromUri(params.cwd);
  const home = homeDirectory(locations.env);
  const codexHome = codexHomeDirectory(locations.env);
  const system = join(locations.systemDirectory, "config.toml");
  const config: ConfigLayers = { layers: [], cloudInsertionIndex: 0 };
  const requirements: ConfigLayers = { layers: [], cloudInsertionIndex: 0 };

  await addLayer(config, system, `system (${system})`, params.configPaths);
  config.cloudInsertionIndex = config.layers.length;
  const user = join(codexHome, "config.toml");
  const userTable = await addLayer(config, user, `user (${user})`, params.configPaths);
  for (const directory of await projectDirectories(cwd, userTable)) {
    const path = join(directory, ".codex", "config.toml");
    if (path !== user) await addLayer(config, path, `project (${path})`, params.configPaths);
  }
  const required = join(locations.systemDirectory, "requirements.toml");
  await addLayer(requirements, required, required, params.requirementsPaths);
  requirements.cloudInsertionIndex = requirements.layers.length;

  return {
    userHomeDir: uriFromPath(home),
    codexHomeDir: uriFromPath(codexHome),
    hostname: hostname(),
    config,
    requirements,
  };
}

export function codexHomeDirectory(env: NodeJS.ProcessEnv): string {
  return env.CODEX_HOME || join(homeDirectory(env), ".codex");
}

type Table = Record<string, unknown>;

/** Reads a file, adds the values of the keys as a layer if there are any, and returns the whole table. */
async function addLayer(to: ConfigLayers, path: string, source: string, keys: string[][]): Promise<Table> {
  const text = await readTextFile(path);
  if (text === null) return {};
  const { parse, stringify } = await import("smol-toml");
  let table: Table;
  try {
    table = parse(text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.split("\n", 1)[0] : String(cause);
    throw internalError(`failed to load executor-local config: ${path}: ${why}`, { cause });
  }
  const chosen = emptyTable();
  for (const key of keys) copyPath(table, chosen, key);
  if (Object.keys(chosen).length > 0) {
    to.layers.push({ source, baseDir: uriFromPath(dirname(path)), toml: `${stringify(chosen).trimEnd()}\n` });
  }
  return table;
}

/** Copies the value at a key path. For a shorter path it copies the existing parent tables. */
function copyPath(from: Table, to: Table, [key, ...rest]: string[]): void {
  if (key === undefined || !Object.hasOwn(from, key)) return;
  const value = from[key];
  const existing = Object.hasOwn(to, key) ? to[key] : undefined;
  // Another key path has copied the whole table already.
  if (existing === value) return;
  if (rest.length === 0) {
    to[key] = value;
  } else if (isTable(value)) {
    const table = isTable(existing) ? existing : emptyTable();
    to[key] = table;
    copyPath(value, table, rest);
  }
}

/** Without a prototype, because keys of a file may have any name. */
function emptyTable(): Table {
  return Object.create(null);
}

function isTable(value: unknown): value is Table {
  return isObject(value) && !(value instanceof Date);
}

/** Returns the trusted directories from the project root (the nearest with `.git`, else `cwd`) down to `cwd`. */
async function projectDirectories(cwd: string, userTable: Table): Promise<string[]> {
  const up: string[] = [];
  for (let directory = cwd; ; directory = dirname(directory)) {
    up.unshift(directory);
    if ((await lstat(join(directory, ".git")).catch(() => null)) !== null) break;
    if (directory === dirname(directory)) {
      up.splice(0, up.length, cwd);
      break;
    }
  }
  const { projects } = userTable;
  const trusts = (directory: string | undefined) => {
    if (directory === undefined || !isTable(projects) || !Object.hasOwn(projects, directory)) return false;
    const project = projects[directory];
    return isTable(project) && project.trust_level === "trusted";
  };
  return trusts(up[0]) ? up : up.filter(trusts);
}
