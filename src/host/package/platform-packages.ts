/** Platform-specific packages for a copy of this installation to another host. */

import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { asObject, asString } from "../../base/json-fields.ts";
import { isSourceCheckout, NATIVE_FILES, packageRoot } from "../../native/native-files.ts";
import { VERSION } from "../../version.ts";
import { parseNpmErrorCode } from "./npm-compat.ts";

const OLDEST_NODE = 24;

export interface PlatformPackagesOptions {
  /** A package or a directory of packages that the user named; other sources are then ignored. */
  from?: string | undefined;
  /** A source checkout that may have built the packages; null if there is none. */
  clone?: string | null;
  /** Reports slow operations. */
  log: (text: string) => void;
}

/** Finds or downloads the packages of a platform. Removes unpacked files on disposal. */
export class PlatformPackages implements Disposable {
  readonly #from: string | undefined;
  readonly #clone: string | null;
  readonly #log: (text: string) => void;
  readonly #scratch = mkdtempSync(join(tmpdir(), "procwire-platform-"));

  constructor({ from, clone = isSourceCheckout() ? packageRoot() : null, log }: PlatformPackagesOptions) {
    this.#from = from === undefined ? undefined : resolve(from);
    this.#clone = clone;
    this.#log = log;
  }

  /** Returns a directory with the addon and the programs of a platform such as `linux-arm64-musl`. */
  async native(platform: string): Promise<string> {
    const name = `@procwire/${platform}`;
    if (this.#from !== undefined) {
      const given = this.#findGiven(this.#from, platform);
      if (given === null)
        throw new Error(
          `--install-from ${this.#from} holds no ${name}; expected its directory, its tarball (${tarballOf(name)}) or a directory with one of them`,
        );
      return given;
    }
    const [made, hint] = this.#findBuilt(platform);
    return made ?? this.#download(name, VERSION, hint);
  }

  /** Returns a Node for the platform: the version of this process, otherwise a newer one of the same major version. */
  async node(platform: string): Promise<string> {
    const name = `node-${platform}`;
    const given = this.#from === undefined ? null : newestNode(this.#from, name);
    if (given !== null) return nodeIn(this.#unpack(given));
    const { node } = process.versions;
    try {
      return nodeIn(await this.#download(name, node, ""));
    } catch (error) {
      const [line = ""] = node.split(".");
      return nodeIn(
        await this.#download(name, line, "").catch(() => {
          throw error;
        }),
      );
    }
  }

  /** Returns the package from the path that the user named. */
  #findGiven(from: string, platform: string): string | null {
    const name = `@procwire/${platform}`;
    const found = statSync(from, { throwIfNoEntry: false });
    if (found === undefined) throw new Error(`--install-from ${from}: no such file or directory`);
    if (!found.isDirectory()) return this.#requirePackage(this.#unpack(from), name, from);
    for (const directory of [from, join(from, platform)]) {
      if (!holdsNativeFiles(directory)) continue;
      // The output of `npm run prebuilds` has no manifest; its directory name identifies the platform.
      if (existsSync(join(directory, "package.json"))) return this.#requirePackage(directory, name, directory);
      if (basename(directory) === platform) return directory;
    }
    const packed = join(from, tarballOf(name));
    return existsSync(packed) ? this.#requirePackage(this.#unpack(packed), name, packed) : null;
  }

  /** Returns the package that the clone built; otherwise null and how to build it. */
  #findBuilt(platform: string): [string | null, string] {
    const root = this.#clone;
    if (root === null) return [null, ""];
    const sourcesAt = newestSource(join(root, "native"));
    const name = `@procwire/${platform}`;
    const built = join(root, "prebuild", "out", platform);
    const packed = join(root, "release", tarballOf(name));
    const isFresh = (path: string) => existsSync(path) && statSync(path).mtimeMs >= sourcesAt;
    if (holdsNativeFiles(built) && isFresh(join(built, "procwire.node"))) return [built, ""];
    if (isFresh(packed)) return [this.#requirePackage(this.#unpack(packed), name, packed), ""];
    const state = existsSync(built) || existsSync(packed) ? "older than its sources" : "not made";
    return [null, `it is ${state} in this clone (\`npm run prebuilds\` makes it), and `];
  }

  /** Downloads the package with npm, which verifies it. */
  async #download(name: string, version: string, hint: string): Promise<string> {
    const directory = mkdtempSync(join(this.#scratch, "npm-"));
    const spec = `${name}@${version}`;
    this.#log(`asking npm for ${spec}`);
    try {
      await promisify(execFile)("npm", ["pack", spec, "--ignore-scripts", "--pack-destination", directory]);
    } catch (error) {
      throw new Error(`${spec} was not found: ${hint}${whyNpmFailed(error)}`, { cause: error });
    }
    const [packed] = readdirSync(directory);
    if (packed === undefined) throw new Error(`${spec} was not found: ${hint}npm wrote no file`);
    return this.#unpack(join(directory, packed));
  }

  #unpack(tarball: string): string {
    const directory = mkdtempSync(join(this.#scratch, "package-"));
    try {
      execFileSync("tar", ["-xzf", tarball, "-C", directory, "--strip-components=1"], {
        stdio: ["ignore", "ignore", "pipe"],
      });
    } catch (cause) {
      throw new Error(`unpack ${tarball}: \`tar\` cannot read the package`, { cause });
    }
    return directory;
  }

  #requirePackage(directory: string, name: string, source: string): string {
    const path = join(directory, "package.json");
    const manifest: { name?: string; version?: string } = existsSync(path)
      ? JSON.parse(readFileSync(path, "utf8"))
      : {};
    if (manifest.name !== name || manifest.version !== VERSION)
      throw new Error(
        `${source} is ${manifest.name ?? "no package"} ${manifest.version ?? ""}; expected ${name} ${VERSION}`,
      );
    if (!holdsNativeFiles(directory)) throw new Error(`${source} lacks ${NATIVE_FILES.join(", ")}`);
    return directory;
  }

  [Symbol.dispose](): void {
    rmSync(this.#scratch, { recursive: true, force: true });
  }
}

/** Returns true if a Node version such as `v24.1.0` runs procwire. */
export function isSupportedNode(nodeVersion: string | null): boolean {
  return Number(/^v(\d+)\./.exec(nodeVersion ?? "")?.[1] ?? 0) >= OLDEST_NODE;
}

/** Returns the C library of this process. */
export function currentLibc(): "glibc" | "musl" {
  const report = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return report.header.glibcVersionRuntime === undefined ? "musl" : "glibc";
}

/** Returns the file name that `npm pack` creates. */
function tarballOf(name: string): string {
  return `${name.replace("@", "").replace("/", "-")}-${VERSION}.tgz`;
}

function holdsNativeFiles(directory: string): boolean {
  return NATIVE_FILES.every((file) => existsSync(join(directory, file)));
}

/** Returns the tarball of the newest Node in the named directory. */
function newestNode(from: string, name: string): string | null {
  if (!statSync(from).isDirectory()) return null;
  const versionOf = (file: string) => file.slice(name.length + 1, -".tgz".length);
  const [newest] = readdirSync(from)
    .filter((file) => file.startsWith(`${name}-`) && file.endsWith(".tgz"))
    .filter((file) => isSupportedNode(`v${versionOf(file)}`))
    .sort((a, b) => versionOf(b).localeCompare(versionOf(a), undefined, { numeric: true }));
  return newest === undefined ? null : join(from, newest);
}

function nodeIn(directory: string): string {
  const path = join(directory, "bin", "node");
  if (!existsSync(path)) throw new Error(`${directory} lacks bin/node`);
  return path;
}

/** Returns the time of the last change of the native sources. */
function newestSource(native: string): number {
  const files = readdirSync(native, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /\.(cc|c|h|mjs)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !path.startsWith(join(native, "build")));
  return Math.max(...files.map((path) => statSync(path).mtimeMs));
}

function whyNpmFailed(error: unknown): string {
  if (hasErrorCode(error, "ENOENT")) return "npm is not installed";
  const npmCode = parseNpmErrorCode(asString(asObject(error).stderr));
  if (npmCode === "E404" || npmCode === "ETARGET") return "npm has no such package";
  return `npm failed (${npmCode ?? errorMessage(error)})`;
}
