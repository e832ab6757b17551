import { join, resolve, sep } from "node:path";
import { parseObject } from "../base/json-fields.ts";
import { getMetadata } from "../files/metadata.ts";
import { errnoNameOf, osErrorMessage } from "../files/os-error.ts";
import { walk } from "../files/walk.ts";
import { RequestError } from "../protocol/errors.ts";
import { pathFromUri, uriFromPath } from "../protocol/path-uri.ts";
import { NotTextError, readTextFile } from "./read-text-file.ts";

export interface CapabilityFile {
  path: string;
  contents: string;
}

export interface CapabilityRoot {
  id: string;
  path: string;
  plugin: {
    manifest: CapabilityFile;
    mcpConfig: CapabilityFile | null;
    appsConfig: CapabilityFile | null;
  } | null;
  skills: { instructions: CapabilityFile; metadata: CapabilityFile | null }[];
  /** All plugin manifests in the tree. The nearest one above a skill provides the prefix of its full name. */
  namespaceManifests: CapabilityFile[];
  warnings: string[];
  error: string | null;
}

/** Searches each root for a plugin and for skills. Returns the files unchanged, for the client to interpret. */
export async function discoverCapabilityRoots(params: {
  roots: { id: string; path: string }[];
}): Promise<{ roots: CapabilityRoot[] }> {
  const roots: CapabilityRoot[] = [];
  // Sequential, because each root is a walk of a whole tree.
  for (const { id, path } of params.roots) roots.push(await discoverRoot(id, path));
  return { roots };
}

/** Deep enough for a plugin's `skills/group/name/SKILL.md`, shallow enough for a root that contains a checkout. */
const WALK_LIMITS = {
  maxDepth: 6,
  maxDirectories: 2000,
  maxEntries: 20_000,
  followDirectorySymlinks: true,
};

/** In search order. */
const MANIFESTS = [".codex-plugin", ".claude-plugin", ".cursor-plugin"].map((directory) => `${directory}/plugin.json`);
const INSTRUCTIONS = "SKILL.md";
const SKILL_METADATA = join("agents", "openai.yaml");

export async function discoverRoot(id: string, uri: string): Promise<CapabilityRoot> {
  const found: CapabilityRoot = {
    id,
    path: uri,
    plugin: null,
    skills: [],
    namespaceManifests: [],
    warnings: [],
    error: null,
  };
  try {
    if (!(await getMetadata({ path: uri })).isDirectory) {
      found.error = `capability root ${uri} is not a directory`;
      return found;
    }
    await fill(found, pathFromUri(uri));
  } catch (error) {
    found.error = `failed to inspect capability root ${uri}: ${reason(error)}`;
  }
  return found;
}

async function fill(found: CapabilityRoot, root: string): Promise<void> {
  const listing = await walk({ path: found.path, options: WALK_LIMITS });
  if (listing.truncated) found.warnings.push(`capability root ${found.path} is too large; this list is incomplete`);
  for (const { path, message } of listing.errors) found.warnings.push(`failed to list ${path}: ${message}`);
  const files = listing.entries.filter(({ kind }) => kind === "file").map(({ path }) => textPath(path));
  // Parents precede their contents.
  const paths = files.filter((path) => path !== null).sort();

  const read = async (path: string): Promise<CapabilityFile | null> => {
    try {
      const contents = await readTextFile(path);
      return contents === null ? null : { path: uriFromPath(path), contents };
    } catch (error) {
      const uri = uriFromPath(path);
      const text = error instanceof NotTextError ? `capability file ${uri} is not UTF-8` : null;
      found.warnings.push(text ?? `failed to read capability file ${uri}: ${reason(error)}`);
      return null;
    }
  };

  for (const path of paths.filter((path) => MANIFESTS.some((name) => path.endsWith(`/${name}`)))) {
    const manifest = await read(path);
    if (manifest !== null) found.namespaceManifests.push(manifest);
  }
  for (const path of paths.filter((path) => path.endsWith(`/${INSTRUCTIONS}`))) {
    const instructions = await read(path);
    if (instructions === null) continue;
    const metadata = await read(join(path, "..", SKILL_METADATA));
    found.skills.push({ instructions, metadata });
  }
  for (const name of MANIFESTS) {
    const manifest = found.namespaceManifests.find(({ path }) => path === uriFromPath(join(root, name)));
    if (manifest === undefined) continue;
    found.plugin = {
      manifest,
      mcpConfig: await read(configPath(root, manifest, "mcpServers", ".mcp.json")),
      appsConfig: await read(configPath(root, manifest, "apps", ".app.json")),
    };
    return;
  }
}

/** Returns the path that the manifest names, if it is below the plugin; otherwise the default path. */
function configPath(root: string, manifest: CapabilityFile, field: string, usual: string): string {
  // The client receives the manifest and reports invalid JSON.
  const named = parseObject(manifest.contents)?.[field];
  const path = typeof named === "string" ? resolve(root, named) : "";
  return path.startsWith(root + sep) ? path : join(root, usual);
}

function textPath(uri: string): string | null {
  try {
    return pathFromUri(uri);
  } catch {
    // A name that is not UTF-8 belongs to neither a skill nor a manifest.
    return null;
  }
}

function reason(error: unknown): string {
  if (error instanceof RequestError) return error.message;
  const name = errnoNameOf(error);
  if (name !== null) return osErrorMessage(name);
  throw error;
}
