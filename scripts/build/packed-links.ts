import { readFileSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";

/** Inline links of Markdown: `[text](target)` and `![alt](target)`. */
const LINK = /(\]\()([^)\s]+)(\))/g;

/**
 * Rewrites the Markdown files of a package: a relative link to a file of the repository that is not in the package
 * becomes the file's URL in the repository, at the tag of the version.
 */
export function rewriteLinks(stage: string, paths: readonly string[], manifest: LinkedManifest): void {
  const packed = new Set(paths);
  for (const path of paths.filter((name) => name.endsWith(".md"))) {
    const file = join(stage, path);
    writeFileSync(file, withPackedLinks(readFileSync(file, "utf8"), path, packed, repositoryUrl(manifest)));
  }
}

/** Manifest fields from which the URL of a file in the repository derives. */
export interface LinkedManifest {
  version: string;
  repository?: unknown;
}

/** Returns the text of a packed Markdown file, whose relative links lead to files of the package. */
export function withPackedLinks(text: string, path: string, packed: ReadonlySet<string>, repository: string): string {
  return text.replaceAll(LINK, (link, open: string, target: string, close: string) => {
    const [file = "", fragment] = target.split("#", 2);
    if (file === "" || /^[a-z]+:/.test(file)) return link;
    const resolved = posix.join(posix.dirname(path), file);
    if (packed.has(resolved)) return link;
    return `${open}${repository}/${resolved}${fragment === undefined ? "" : `#${fragment}`}${close}`;
  });
}

/** Returns the URL of the repository's files at the tag of this version. */
function repositoryUrl({ version, repository }: LinkedManifest): string {
  const { url } = repository as { url: string };
  return `${url.replace(/^git\+/, "").replace(/\.git$/, "")}/blob/v${version}`;
}
