import { accessSync, constants, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { errorMessage } from "../base/error-message.ts";
import { isStrictlyBelow, isWithin } from "./bubblewrap.ts";

/*
 * A mask covers one directory entry. A file that replaces a masked file by rename is a new entry, which running sandboxes
 * can read. Therefore secrets are masked with their directory, which must contain nothing else.
 */

/** Directories that container runtimes and systemd fill with secrets only. */
const SECRET_DIRECTORIES = ["/run/secrets", "/run/credentials"];

/** Number of foreign entries that an error message lists. */
const MAX_LISTED = 3;

/** The way to make a directory for secrets, in error messages. */
const REMEDY =
  "move the file to a directory that contains only secrets of this server (`mkdir -p -m 700 ~/.procwire/secrets`)";

/**
 * Returns the directory that hides a secret file; null if the directory is missing. Throws if the directory also contains
 * other files, because then a replacement of the file could not be hidden. `own` lists all files of this server.
 */
export function requireSecretDirectory(path: string, own: readonly string[]): string | null {
  const directory = directoryOf(path);
  const exposure = directory === null ? null : describeExposure(directory, own);
  if (exposure !== null) throw new Error(`secret file \`${path}\`: ${exposure}`);
  return directory;
}

/** A secret whose directory cannot be hidden from sandboxed commands. */
export interface ExposedSecret {
  path: string;
  /** The reason and the remedy. */
  exposure: string;
}

/**
 * Returns one exposed secret per directory that cannot be hidden. Reads each directory once. `directories` are masked as
 * a whole.
 */
export function findExposedSecrets(
  paths: readonly string[],
  ownFiles: readonly string[],
  directories: readonly string[],
): ExposedSecret[] {
  const own = ownFiles.flatMap(withLinkTarget);
  const secrets = new Map<string, string>();
  for (const path of paths.filter((path) => needsSecretDirectory(path, directories)))
    for (const file of withLinkTarget(path)) {
      const directory = directoryOf(file);
      if (directory !== null && !secrets.has(directory)) secrets.set(directory, path);
    }
  return [...secrets].flatMap(([directory, path]) => {
    const exposure = describeExposure(directory, own);
    return exposure === null ? [] : [{ path, exposure }];
  });
}

/** Reports whether only the directory of the path can hide it: false for a directory, a socket and a file below a masked directory. */
export function needsSecretDirectory(path: string, directories: readonly string[]): boolean {
  return mayBeSecret(path) && !directories.some((above) => isStrictlyBelow(resolve(path), resolve(above)));
}

/** Reports whether the path is a regular file, or missing: a missing secret may be written later. */
export function mayBeSecret(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? true;
}

/** Returns the path, and the target of a link that leaves its directory: the mask of the directory hides only the link. */
export function withLinkTarget(path: string): string[] {
  const directory = directoryOf(path);
  if (directory === null || !mayBeSecret(path)) return [path];
  try {
    const target = realpathSync(path);
    return isWithin(target, directory) ? [path] : [path, target];
  } catch {
    return [path];
  }
}

/** Not resolved further: Kubernetes replaces the link with the name of the file. */
function directoryOf(path: string): string | null {
  try {
    return realpathSync(dirname(resolve(path)));
  } catch {
    return null;
  }
}

/** Returns why the directory cannot be hidden, with the remedy, or null if it contains only files of this server. */
function describeExposure(directory: string, own: readonly string[]): string | null {
  const known = [...SECRET_DIRECTORIES, process.env.CREDENTIALS_DIRECTORY ?? []].flat();
  if (known.some((path) => isWithin(directory, path))) return null;
  const names = own.filter((path) => directoryOf(path) === directory).map((path) => basename(path));
  const describe = (cause: string, remedy: string) =>
    `directory \`${directory}\` ${cause}, so a sandboxed command could read the file after it is replaced; ${remedy}`;
  let entries: string[];
  try {
    entries = readdirSync(directory);
  } catch (error) {
    return describe(`cannot be listed (${errorMessage(error)})`, REMEDY);
  }
  const hasKey = names.some((name) => KEY_FILE.test(name));
  const foreign = entries.filter(
    (entry) => !names.some((name) => isVersionOf(entry, name)) && !(hasKey && KEY_COMPANION.test(entry)),
  );
  if (foreign.length > 0) {
    const listed = foreign.slice(0, MAX_LISTED).map((entry) => `\`${entry}\``);
    if (foreign.length > MAX_LISTED) listed.push("more");
    return describe(`also contains ${listed.join(", ")}`, REMEDY);
  }
  if ((statSync(directory).mode & WRITABLE_BY_OTHERS) === 0 || isReadOnlyMount(directory)) return null;
  return describe("can be written by other users", `run \`chmod go-w ${directory}\``);
}

const WRITABLE_BY_OTHERS = 0o022;

/** Names of TLS keys: `key.pem`, `privkey1.pem`, `server.key`. */
const KEY_FILE = /key\d*\.pem$|\.key$/;

/** Other entries that the directory of a TLS key may contain: keys, certificates, and the README of certbot. */
const KEY_COMPANION = /\.(pem|key|crt|cer|csr)$|^README$/;

/** Kubernetes mounts secrets read-only, in a directory that every user could write otherwise. */
function isReadOnlyMount(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK);
    return false;
  } catch (error) {
    return hasErrorCode(error, "EROFS");
  }
}

/** Reports whether an entry is the file, a backup, a rotated log or a replacement that is being written. */
function isVersionOf(entry: string, name: string): boolean {
  // Kubernetes keeps the files of a secret in `..data` and `..TIME`.
  if (entry === name || entry.startsWith("..")) return true;
  return entry.startsWith(`.${name}`) || [".", "-", "~"].some((separator) => entry.startsWith(`${name}${separator}`));
}
