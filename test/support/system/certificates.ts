import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { secretPath } from "../auth/secret-file.ts";

/** Why no certificates can be created on this host, or null. */
export function opensslMissing(): string | null {
  return spawnSync("openssl", ["version"]).status === 0 ? null : "openssl is not installed";
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Paths of a certificate and its key. */
export interface IssuedCertificate {
  cert: string;
  key: string;
}

/** A temporary certificate authority, with its certificate in `caFile`. */
export class TestAuthority {
  readonly caFile: string;
  readonly #directory: string;
  #made = 0;

  constructor(directory: string) {
    this.#directory = directory;
    this.caFile = secretPath(directory, "ca.pem");
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
  issue(altName: string, days = 30): IssuedCertificate {
    return this.#issue(`subjectAltName=${altName}`, `/CN=server ${this.#made + 1}`, days);
  }

  /** Issues a client's certificate and key. The subject has the form `/O=Example/CN=alice`. */
  issueClient(subject: string, days = 30): IssuedCertificate {
    return this.#issue("extendedKeyUsage=clientAuth", subject, days);
  }

  /** Writes the list of revoked certificates, after adding some to it. */
  writeRevoked(list: string, ...certificates: IssuedCertificate[]): void {
    const config = join(this.#directory, "revocation.cnf");
    const index = join(this.#directory, "index.txt");
    const settings = [`database=${index}`, "default_md=sha256", "default_crl_days=30"];
    writeFileSync(config, `[ca]\ndefault_ca=one\n[one]\n${settings.join("\n")}\n`);
    writeFileSync(index, "", { flag: "a" });
    const authority = ["-config", config, "-cert", this.caFile, "-keyfile", join(this.#directory, "ca.key")];
    for (const { cert } of certificates) openssl("ca", ...authority, "-revoke", cert);
    openssl("ca", ...authority, "-gencrl", "-out", list);
  }

  #issue(extension: string, subject: string, days: number): IssuedCertificate {
    const path = (name: string) => join(this.#directory, `${this.#made}-${name}`);
    this.#made++;
    const [request, extensions, key] = [
      path("request"),
      path("extensions"),
      secretPath(this.#directory, `${this.#made}-key.pem`),
    ];
    const cert = join(dirname(key), "cert.pem");
    writeFileSync(extensions, `${extension}\n`);
    openssl("req", ...NEW_KEY, "-subj", subject, "-keyout", key, "-out", request);
    const authority = [
      "-CA",
      this.caFile,
      "-CAkey",
      join(this.#directory, "ca.key"),
      "-CAserial",
      join(this.#directory, "ca.srl"),
      "-CAcreateserial",
    ];
    openssl("x509", "-req", "-in", request, ...authority, "-days", String(days), "-extfile", extensions, "-out", cert);
    return { cert, key };
  }
}

function openssl(...args: string[]): void {
  const { status, stderr } = spawnSync("openssl", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`openssl ${args.join(" ")}: ${stderr}`);
}
