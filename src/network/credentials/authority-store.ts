import { createHash, randomBytes } from "node:crypto";
import { linkSync, lstatSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { CertificateAuthority } from "./certificate-authority.ts";

/** The certificate authority of a server, and the certificates that the server and its sandboxes trust. */
export interface StoredAuthority {
  authority: CertificateAuthority;
  /** File with the certificates of the host and of the authority, for sandboxes. */
  bundlePath: string;
  /** Verifies the servers of credential domains. It does not trust the authority itself. */
  originContext: SecureContext;
}

/** Contains the key of the authority. */
const AUTHORITY_FILE = "authority.pem";

/**
 * Opens the authority of a private directory; creates both if they are missing. If the directory cannot be written, the
 * authority stays in memory and `openFallback` returns the directory of the bundle.
 */
export function openAuthority(directory: string, openFallback: () => string): StoredAuthority {
  // The file of the host may change while the server runs; the next server reads it.
  const trusted = [...new Set([...getCACertificates("default"), ...getCACertificates("system")])];
  const { authority, home } = openIn(directory) ?? { authority: CertificateAuthority.create(), home: openFallback() };
  const bundle = [...trusted, authority.certificate].map((pem) => `${pem.trim()}\n`).join("");
  const digest = createHash("sha256").update(bundle).digest("hex").slice(0, 16);
  const bundlePath = join(realpathSync(home), `ca-bundle-${digest}.pem`);
  if (!hasContents(bundlePath, bundle)) writeAtomically(bundlePath, bundle, 0o644);
  return { authority, bundlePath, originContext: createSecureContext({ ca: trusted }) };
}

function openIn(directory: string): { authority: CertificateAuthority; home: string } | null {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    requirePrivate(directory);
    return { authority: loadOrCreate(join(directory, AUTHORITY_FILE)), home: directory };
  } catch (error) {
    if (hasErrorCode(error, "EACCES", "EPERM", "EROFS", "ENOENT", "ENOTDIR", "ENOSPC", "EDQUOT")) return null;
    throw error;
  }
}

/** Throws if another user could read the key. */
function requirePrivate(directory: string): void {
  const found = lstatSync(directory);
  const isOwn = found.isDirectory() && found.uid === (process.geteuid?.() ?? found.uid);
  if (isOwn && (found.mode & 0o077) === 0) return;
  throw new Error(
    `credentials: directory \`${directory}\` must be a directory of this user with mode 0700; remove it, or set PROCWIRE_HOME`,
  );
}

function loadOrCreate(path: string): CertificateAuthority {
  const stored = readStored(path);
  if (stored) return stored;
  const created = CertificateAuthority.create();
  const temporary = `${path}.${randomBytes(6).toString("hex")}`;
  writeFileSync(temporary, created.serialize(), { mode: 0o600, flag: "wx" });
  try {
    // Fails if another server has created the file meanwhile: its authority is the valid one.
    linkSync(temporary, path);
    return created;
  } catch (error) {
    if (!hasErrorCode(error, "EEXIST")) throw error;
    const other = readStored(path);
    if (other) return other;
    // Unusable or expired.
    renameSync(temporary, path);
    return created;
  } finally {
    rmSync(temporary, { force: true });
  }
}

function readStored(path: string): CertificateAuthority | null {
  try {
    return CertificateAuthority.parse(readFileSync(path, "utf8"));
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return null;
    throw error;
  }
}

function hasContents(path: string, text: string): boolean {
  try {
    return readFileSync(path, "utf8") === text;
  } catch {
    return false;
  }
}

function writeAtomically(path: string, text: string, mode: number): void {
  const temporary = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    writeFileSync(temporary, text, { mode, flag: "wx" });
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw new Error(`credentials: cannot write \`${path}\`: ${errorMessage(error)}`, { cause: error });
  }
}
