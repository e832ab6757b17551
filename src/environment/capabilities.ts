import { basename, dirname, join } from "node:path";
import { pathFromUri, uriFromPath } from "../protocol/path-uri.ts";
import { discoverRoot } from "./capability-roots.ts";
import { codexHomeDirectory } from "./environment-config.ts";
import { homeDirectory } from "./environment-info.ts";

export interface Skill {
  name: string;
  description: string;
  shortDescription: string | null;
  path: string;
  discoveryRoot: { id: string; path: string };
  dependencies: null;
  policy: null;
}

export interface Capabilities {
  plugins: never[];
  skills: Skill[];
  warnings: string[];
}

/** Returns the skills of the host's user. Warns about plugins and `agents/openai.yaml`, which it does not read. */
export async function discoverCapabilities(env: NodeJS.ProcessEnv = process.env): Promise<Capabilities> {
  const codexHome = codexHomeDirectory(env);
  const skillRoots = [
    { id: "codex-home-skills", path: uriFromPath(join(codexHome, "skills")) },
    { id: "user-agent-skills", path: uriFromPath(join(homeDirectory(env), ".agents", "skills")) },
  ];
  const result: Capabilities = { plugins: [], skills: [], warnings: [] };
  for (const discoveryRoot of skillRoots) {
    const found = await discoverRoot(discoveryRoot.id, discoveryRoot.path);
    result.warnings.push(...found.warnings);
    for (const { instructions, metadata } of found.skills) {
      const front = frontMatter(instructions.contents);
      const { description } = front;
      if (description === undefined) {
        result.warnings.push(`skill ${instructions.path} has no description in its front matter`);
        continue;
      }
      const name = front.name ?? basename(dirname(pathFromUri(instructions.path)));
      if (metadata !== null) result.warnings.push(`this server ignores ${metadata.path}`);
      const shortDescription = front["short-description"] ?? null;
      const base = { name, description, shortDescription, path: instructions.path, discoveryRoot };
      result.skills.push({ ...base, dependencies: null, policy: null });
    }
  }
  const plugins = await discoverRoot("plugins", uriFromPath(join(codexHome, "plugins", "cache")));
  for (const { path } of plugins.namespaceManifests) {
    result.warnings.push(`this server does not list the plugin ${path}`);
  }
  return result;
}

/**
 * Parses the plain `key: value` lines between the two `---` at the top of a text, including nested keys, because
 * `short-description` is below `metadata`. Other YAML is ignored.
 */
function frontMatter(text: string): Partial<Record<string, string>> {
  const [, block] = /^---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/.exec(text) ?? [];
  const values: Partial<Record<string, string>> = {};
  for (const line of (block ?? "").split(/\r?\n/)) {
    const [, key, value] = /^\s*([A-Za-z_-]+):\s+(.*\S)\s*$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined) values[key] = unquoted(value);
  }
  return values;
}

function unquoted(value: string): string {
  const [, quote, inner] = /^(["'])(.*)\1$/.exec(value) ?? [];
  if (quote === undefined || inner === undefined) return value;
  return quote === "'" ? inner.replaceAll("''", "'") : inner.replaceAll(/\\(["\\])/g, "$1");
}
