import { isObject } from "../base/type-guards.ts";
import { invalidParams } from "../protocol/errors.ts";
import { cwdFromUri, pathFromUri, uriFromPath } from "../protocol/path-uri.ts";
import type { Access } from "./bubblewrap.ts";

/** The location of an entry, before it is resolved on the host. */
export type SandboxLocation =
  | { type: "root" }
  /** Paths that programs need to run: executables, libraries, configuration. */
  | { type: "minimal" }
  | { type: "workspace"; subpath: string | null }
  | { type: "slashTmp" }
  | { type: "tmpdir" }
  | { type: "path"; path: string };

export interface SandboxEntry {
  location: SandboxLocation;
  access: Access;
  /** `skip`: no protection is needed if the location is missing. */
  missing: "skip" | "enforce";
  /** Contents of the placeholder file while the path is missing. Default: the placeholder is an empty directory. */
  placeholder?: string | undefined;
}

/** The sandbox that a client requests. */
export type SandboxRequest =
  | { type: "none" }
  | {
      type: "sandboxed";
      files: { type: "unrestricted" } | { type: "restricted"; entries: SandboxEntry[] };
      network: boolean;
      /** Null: the working directory of the process. */
      cwd: string | null;
      /** Null: `cwd`. */
      workspaceRoots: string[] | null;
      /** The paths of `tmpdir`; null: derived from TMPDIR. */
      temporaryDirectories: string[] | null;
      /** An empty /tmp that is removed with the process. A procwire extension. */
      privateTmp: boolean;
      /** With `privateTmp`: processes of a session with the same name share one /tmp until the session ends. */
      sharedTmp: string | null;
      /** Protects shell start-up files and procwire's data directories within writable roots. A procwire extension. */
      protectStartUpFiles: boolean;
    };

/** The error for every request that this host cannot enforce or this version cannot parse. */
export const unenforceableSandbox = ({ reason, ...options }: ErrorOptions & { reason?: string | undefined } = {}) =>
  invalidParams(
    `sandbox intent cannot be enforced on this executor${reason === undefined ? "" : `: ${reason}`}`,
    options,
  );

/** Returns the entry of a path in the `sandbox` object of the wire protocol. */
export function pathEntry(path: string, access: Access) {
  return { path: { type: "path", path: uriFromPath(path) }, access };
}

/**
 * Parses the `sandbox` object of the wire protocol. Ignores fields about Windows and the Linux mechanism. A managed
 * network needs a sandbox even if the request restricts nothing.
 */
export function parseSandboxRequest(value: unknown, { hasManagedNetwork = false } = {}): SandboxRequest {
  const request = record(value, "FileSystemSandboxContext");
  const permissions = record(field(request, "permissions"), "PermissionProfile");
  field(request, "windowsSandboxLevel");
  const common = {
    cwd: optional(request, "cwd", (uri) => cwdFromUri(text(uri))),
    workspaceRoots: optional(request, "workspaceRoots", paths),
    temporaryDirectories: optional(request, "temporaryDirectories", paths),
    privateTmp: optional(request, "privateTmp", flag) ?? false,
    sharedTmp: optional(request, "sharedTmp", text),
    protectStartUpFiles: optional(request, "protectStartUpFiles", flag) ?? false,
  };
  const withoutFileRules = (network: boolean): SandboxRequest =>
    network && !hasManagedNetwork
      ? { type: "none" }
      : { type: "sandboxed", files: { type: "unrestricted" }, network, ...common };
  switch (field(permissions, "type")) {
    case "disabled":
      return withoutFileRules(true);
    case "external":
      // The client restricts files itself; the network may still have to be restricted here.
      return withoutFileRules(parseNetwork(permissions));
    case "managed": {
      const files = parseFiles(record(field(permissions, "file_system"), "FileSystemPermissions"));
      const network = parseNetwork(permissions);
      return files.type === "unrestricted"
        ? withoutFileRules(network)
        : { type: "sandboxed", files, network, ...common };
    }
    default:
      throw unenforceableSandbox();
  }
}

type Json = Readonly<Record<string, unknown>>;

function parseFiles(files: Json): { type: "unrestricted" } | { type: "restricted"; entries: SandboxEntry[] } {
  switch (field(files, "type")) {
    case "unrestricted":
      return { type: "unrestricted" };
    case "restricted":
      return { type: "restricted", entries: list(field(files, "entries")).map(parseEntry) };
    default:
      throw unenforceableSandbox();
  }
}

function parseEntry(value: unknown): SandboxEntry {
  const entry = record(value, "FileSystemSandboxEntry");
  const location = parseLocation(record(field(entry, "path"), "FileSystemPath"));
  const access = ACCESS.get(field(entry, "access"));
  if (!access) throw unenforceableSandbox();
  const missing = entry.missing_path_behavior;
  if (missing !== undefined && missing !== null && missing !== "skip") throw unenforceableSandbox();
  return { location, access, missing: missing === "skip" ? "skip" : "enforce" };
}

/** `none` is the former name of `deny`. */
const ACCESS = new Map<unknown, Access>([
  ["read", "read"],
  ["write", "write"],
  ["deny", "deny"],
  ["none", "deny"],
]);

function parseLocation(path: Json): SandboxLocation {
  switch (field(path, "type")) {
    case "path":
      return { type: "path", path: pathFromUri(text(field(path, "path"))) };
    case "special":
      return parseSpecial(record(field(path, "value"), "FileSystemSpecialPath"));
    default:
      // Includes patterns: a file that matches only later could not be protected.
      throw unenforceableSandbox();
  }
}

function parseSpecial(value: Json): SandboxLocation {
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
      if (subpath !== null && !isRelativeBelow(subpath)) throw unenforceableSandbox();
      return { type: "workspace", subpath };
    }
    default:
      throw unenforceableSandbox();
  }
}

function isRelativeBelow(subpath: string): boolean {
  return !subpath.startsWith("/") && !subpath.includes("\0") && !subpath.split("/").includes("..");
}

function parseNetwork(permissions: Json): boolean {
  switch (field(permissions, "network")) {
    case "restricted":
      return false;
    case "enabled":
      return true;
    default:
      throw unenforceableSandbox();
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
  if (isObject(value)) return { ...value };
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
