import { invalidParams } from "../protocol/errors.ts";
import { cwdFromUri, pathFromUri } from "../protocol/path-uri.ts";
import type { Access } from "./bubblewrap.ts";

/** Where an entry of an intent points, before the host has been looked at. */
export type IntentPlace =
  | { type: "root" }
  /** What programs need to run at all: binaries, libraries, configuration. */
  | { type: "minimal" }
  | { type: "workspace"; subpath: string | null }
  | { type: "slashTmp" }
  | { type: "tmpdir" }
  | { type: "path"; path: string };

export interface IntentEntry {
  place: IntentPlace;
  access: Access;
  /** `skip`: nothing is to be enforced about a place that is not there. */
  missing: "skip" | "enforce";
}

/** The sandbox a caller of the current protocol asks for. */
export type SandboxIntent =
  | { type: "none" }
  | {
      type: "walls";
      files: { type: "unrestricted" } | { type: "restricted"; entries: IntentEntry[] };
      network: boolean;
      /** Null: the process's own. */
      cwd: string | null;
      /** Null: the directory of `cwd`. */
      workspaceRoots: string[] | null;
      /** What `tmpdir` means, where the caller says so. */
      temporaryDirectories: string[] | null;
      /** An empty /tmp of its own that goes with the process; procwire's own field. */
      privateTmp: boolean;
      /** With `privateTmp`: all processes of a session that name the same find one /tmp, until the session ends. */
      lastingTmp: string | null;
    };

/** The answer to every intent that this host cannot hold, or that this version does not understand. */
export const cannotEnforce = ({ reason, ...options }: ErrorOptions & { reason?: string } = {}) =>
  invalidParams(
    `sandbox intent cannot be enforced on this executor${reason === undefined ? "" : `: ${reason}`}`,
    options,
  );

/** Reads the wire's `sandbox` object. Fields about Windows and about which Linux mechanism to use are passed over. */
export function parseSandboxIntent(value: unknown): SandboxIntent {
  const intent = record(value, "FileSystemSandboxContext");
  const permissions = record(field(intent, "permissions"), "PermissionProfile");
  field(intent, "windowsSandboxLevel");
  const common = {
    cwd: optional(intent, "cwd", (uri) => cwdFromUri(text(uri))),
    workspaceRoots: optional(intent, "workspaceRoots", paths),
    temporaryDirectories: optional(intent, "temporaryDirectories", paths),
    privateTmp: optional(intent, "privateTmp", flag) ?? false,
    lastingTmp: optional(intent, "lastingTmp", text),
  };
  switch (field(permissions, "type")) {
    case "disabled":
      return { type: "none" };
    case "external": {
      // The caller restricts the files by its own means; the network may still have to be restricted here.
      const network = parseNetwork(permissions);
      if (network) return { type: "none" };
      return { type: "walls", files: { type: "unrestricted" }, network, ...common };
    }
    case "managed": {
      const files = parseFiles(record(field(permissions, "file_system"), "FileSystemPermissions"));
      const network = parseNetwork(permissions);
      if (files.type === "unrestricted" && network) return { type: "none" };
      return { type: "walls", files, network, ...common };
    }
    default:
      throw cannotEnforce();
  }
}

type Json = Readonly<Record<string, unknown>>;

function parseFiles(files: Json): { type: "unrestricted" } | { type: "restricted"; entries: IntentEntry[] } {
  switch (field(files, "type")) {
    case "unrestricted":
      return { type: "unrestricted" };
    case "restricted":
      return { type: "restricted", entries: list(field(files, "entries")).map(parseEntry) };
    default:
      throw cannotEnforce();
  }
}

function parseEntry(value: unknown): IntentEntry {
  const entry = record(value, "FileSystemSandboxEntry");
  const place = parsePlace(record(field(entry, "path"), "FileSystemPath"));
  const access = ACCESS.get(field(entry, "access"));
  if (!access) throw cannotEnforce();
  const missing = entry.missing_path_behavior;
  if (missing !== undefined && missing !== null && missing !== "skip") throw cannotEnforce();
  return { place, access, missing: missing === "skip" ? "skip" : "enforce" };
}

/** `none` is an older word for `deny`. */
const ACCESS = new Map<unknown, Access>([
  ["read", "read"],
  ["write", "write"],
  ["deny", "deny"],
  ["none", "deny"],
]);

function parsePlace(path: Json): IntentPlace {
  switch (field(path, "type")) {
    case "path":
      return { type: "path", path: pathFromUri(text(field(path, "path"))) };
    case "special":
      return parseSpecial(record(field(path, "value"), "FileSystemSpecialPath"));
    default:
      // Patterns among them: what matches only later could not be kept from being read.
      throw cannotEnforce();
  }
}

function parseSpecial(value: Json): IntentPlace {
  switch (field(value, "kind")) {
    case "root":
      return { type: "root" };
    case "minimal":
      return { type: "minimal" };
    case "slash_tmp":
      return { type: "slashTmp" };
    case "tmpdir":
      return { type: "tmpdir" };
    case "project_roots":
    case "current_working_directory": {
      const subpath = optional(value, "subpath", text);
      if (subpath !== null && !staysInside(subpath)) throw cannotEnforce();
      return { type: "workspace", subpath };
    }
    default:
      throw cannotEnforce();
  }
}

function staysInside(subpath: string): boolean {
  return !subpath.startsWith("/") && !subpath.includes("\0") && !subpath.split("/").includes("..");
}

function parseNetwork(permissions: Json): boolean {
  switch (field(permissions, "network")) {
    case "restricted":
      return false;
    case "enabled":
      return true;
    default:
      throw cannotEnforce();
  }
}

function paths(value: unknown): string[] {
  return list(value).map((uri) => pathFromUri(text(uri)));
}

function field(object: Json, name: string): unknown {
  const value = object[name];
  if (value === undefined) throw invalidParams(`missing field \`${name}\``);
  return value;
}

function optional<T>(object: Json, name: string, parse: (value: unknown) => T): T | null {
  const value = object[name];
  return value === undefined || value === null ? null : parse(value);
}

function record(value: unknown, name: string): Json {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value };
  throw invalidParams(`invalid type: ${kindOf(value)}, expected struct ${name}`);
}

function list(value: unknown): unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidParams(`invalid type: ${kindOf(value)}, expected a sequence`);
}

function text(value: unknown): string {
  if (typeof value === "string") return value;
  throw invalidParams(`invalid type: ${kindOf(value)}, expected a string`);
}

function flag(value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw invalidParams(`invalid type: ${kindOf(value)}, expected a boolean`);
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "sequence" : typeof value === "object" ? "map" : typeof value;
}
