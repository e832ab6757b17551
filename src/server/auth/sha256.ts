/** Returns the SHA-256 digest of a secret. A string has one character per byte. Loads node:crypto on first use. */
export function sha256(secret: Buffer | string): Buffer {
  const hash = process.getBuiltinModule("node:crypto").createHash("sha256");
  return (typeof secret === "string" ? hash.update(secret, "latin1") : hash.update(secret)).digest();
}
