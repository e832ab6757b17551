import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** Why no certificates can be created on this host, or null. */
export function opensslMissing(): string | null {
  return spawnSync("openssl", ["version"]).status === 0 ? null : "openssl is not installed";
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** A temporary certificate authority, with its certificate in `caFile`. */
export class TestAuthority {
  readonly caFile: string;
  readonly #directory: string;
  #made = 0;

  constructor(directory: string) {
    this.#directory = directory;
    this.caFile = join(directory, "ca.pem");
    const key = join(directory, "ca.key");
    openssl(
      "req",
      "-x509",
      ...NEW_KEY,
      "-days",
      "30",
      "-subj",
      "/CN=test authority",
      "-keyout",
      key,
      "-out",
      this.caFile,
    );
  }

  /** Issues a server's certificate and key; negative `days` make an expired certificate. */
  issue(altName: string, days = 30): { cert: string; key: string } {
    const path = (name: string) => join(this.#directory, `${this.#made}-${name}`);
    this.#made++;
    const [cert, key, request, extensions] = [path("cert.pem"), path("key.pem"), path("request"), path("extensions")];
    writeFileSync(extensions, `subjectAltName=${altName}\n`);
    openssl("req", ...NEW_KEY, "-subj", `/CN=server ${this.#made}`, "-keyout", key, "-out", request);
    const authority = ["-CA", this.caFile, "-CAkey", join(this.#directory, "ca.key"), "-CAcreateserial"];
    openssl("x509", "-req", "-in", request, ...authority, "-days", String(days), "-extfile", extensions, "-out", cert);
    return { cert, key };
  }
}

function openssl(...args: string[]): void {
  const { status, stderr } = spawnSync("openssl", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`openssl ${args.join(" ")}: ${stderr}`);
}
