import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  X509Certificate,
} from "node:crypto";
import { isIP } from "node:net";
import { createSecureContext, type SecureContext } from "node:tls";
import { expandIpv6 } from "../../base/ip-address.ts";
import {
  derBits,
  derBoolean,
  derInteger,
  derObjectId,
  derOctets,
  derSequence,
  derSet,
  derTime,
  derUtf8,
  derValue,
} from "./der-writer.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const AUTHORITY_LIFETIME_MS = 3650 * DAY_MS;
/** A certificate of a host is short-lived, because no program checks whether it is revoked. */
const LEAF_LIFETIME_MS = DAY_MS;
/** Certificates are valid before they are made, because the clock may be set back. */
const BACKDATED_MS = HOUR_MS;
/** Maximum certificates of hosts in memory. A pattern may match any number of hosts. */
const MAX_LEAVES = 256;

const ECDSA_WITH_SHA256 = derSequence(derObjectId("1.2.840.10045.4.3.2"));

interface Leaf {
  context: SecureContext;
  renewAtMs: number;
}

/**
 * A certificate authority for the hosts of credentials. Only sandboxes with credentials trust it. It issues a certificate
 * per host, and renews it after half of its lifetime.
 */
export class CertificateAuthority {
  readonly #key: KeyObject;
  /** Certificate of the authority, as PEM. */
  readonly certificate: string;
  readonly #subject: Buffer;
  /** One key for all hosts. It never leaves this process. */
  readonly #leafKey: KeyObject;
  readonly #leaves = new Map<string, Leaf>();

  private constructor(key: KeyObject, certificate: string) {
    this.#key = key;
    this.certificate = certificate;
    this.#subject = nameFromCertificate(certificate);
    this.#leafKey = newKey();
  }

  static create(now = Date.now()): CertificateAuthority {
    const key = newKey();
    // Different authorities need different names: a program may know more than one.
    const subject = distinguishedName(`procwire credentials ${randomBytes(6).toString("hex")}`);
    const certificate = signCertificate({
      ...{ key, issuer: subject, subject, publicKey: createPublicKey(key), issuerKey: createPublicKey(key) },
      ...{ fromMs: now - BACKDATED_MS, toMs: now + AUTHORITY_LIFETIME_MS },
      extensions: [
        extension("2.5.29.19", true, derSequence(derBoolean(true), derInteger(Buffer.from([0])))),
        // keyCertSign and cRLSign.
        extension("2.5.29.15", true, derBits(Buffer.from([0b0000_0110]), 1)),
      ],
    });
    return new CertificateAuthority(key, certificate);
  }

  /** Restores an authority from `serialize`. Returns null if the text is not usable, or expires soon. */
  static parse(pem: string, now = Date.now()): CertificateAuthority | null {
    try {
      const key = createPrivateKey(pem);
      const certificate = new X509Certificate(pem);
      const isCurrent = Date.parse(certificate.validTo) - now > 30 * DAY_MS;
      return certificate.ca && isCurrent && certificate.checkPrivateKey(key)
        ? new CertificateAuthority(key, certificate.toString())
        : null;
    } catch {
      return null;
    }
  }

  /** Returns key and certificate as PEM. */
  serialize(): string {
    return `${this.#key.export({ type: "pkcs8", format: "pem" })}${this.certificate}`;
  }

  /** Returns the TLS context of a server with a certificate for this host name or address. */
  contextFor(host: string, now = Date.now()): SecureContext {
    const known = this.#leaves.get(host);
    // A clock that was set back makes the certificate invalid too.
    if (known && now < known.renewAtMs && now > known.renewAtMs - LEAF_LIFETIME_MS) return known.context;
    const context = createSecureContext({ ...this.leafFor(host, now), minVersion: "TLSv1.2" });
    this.#leaves.delete(host);
    this.#leaves.set(host, { context, renewAtMs: now + LEAF_LIFETIME_MS / 2 });
    const [oldest] = this.#leaves.keys();
    if (oldest !== undefined && this.#leaves.size > MAX_LEAVES) this.#leaves.delete(oldest);
    return context;
  }

  /** Returns the key and a new certificate of a host, as PEM. */
  leafFor(host: string, now = Date.now()): { key: string; cert: string } {
    return { key: this.#leafKey.export({ type: "pkcs8", format: "pem" }).toString(), cert: this.issue(host, now) };
  }

  /** Issues a certificate for a host name or address, as PEM. */
  issue(host: string, now = Date.now()): string {
    const publicKey = createPublicKey(this.#leafKey);
    const issuerKey = createPublicKey(this.#key);
    return signCertificate({
      ...{ key: this.#key, issuer: this.#subject, publicKey, issuerKey },
      // Not the host, which may be longer than a common name.
      subject: distinguishedName("procwire credential host"),
      ...{ fromMs: now - BACKDATED_MS, toMs: now + LEAF_LIFETIME_MS },
      extensions: [
        extension("2.5.29.19", true, derSequence()),
        // digitalSignature.
        extension("2.5.29.15", true, derBits(Buffer.from([0b1000_0000]), 7)),
        // serverAuth.
        extension("2.5.29.37", false, derSequence(derObjectId("1.3.6.1.5.5.7.3.1"))),
        extension("2.5.29.17", false, derSequence(alternativeName(host))),
      ],
    });
  }
}

interface CertificateFields {
  /** Key of the issuer. */
  key: KeyObject;
  issuerKey: KeyObject;
  issuer: Buffer;
  subject: Buffer;
  publicKey: KeyObject;
  fromMs: number;
  toMs: number;
  extensions: readonly Buffer[];
}

function signCertificate({ key, issuerKey, issuer, subject, publicKey, ...fields }: CertificateFields): string {
  const spki = publicKey.export({ type: "spki", format: "der" });
  const issuerId = derValue(0x80, keyIdentifier(issuerKey));
  const extensions = derSequence(
    ...fields.extensions,
    extension("2.5.29.14", false, derOctets(keyIdentifier(publicKey))),
    extension("2.5.29.35", false, derSequence(issuerId)),
  );
  const contents = derSequence(
    // Version 3.
    derValue(0xa0, derInteger(Buffer.from([2]))),
    // At most 20 bytes, and positive.
    derInteger(Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    ECDSA_WITH_SHA256,
    issuer,
    derSequence(derTime(new Date(fields.fromMs)), derTime(new Date(fields.toMs))),
    subject,
    spki,
    derValue(0xa3, extensions),
  );
  const signature = sign("sha256", contents, key);
  const certificate = derSequence(contents, ECDSA_WITH_SHA256, derBits(signature));
  return new X509Certificate(certificate).toString();
}

function newKey(): KeyObject {
  return generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
}

function keyIdentifier(key: KeyObject): Buffer {
  return createHash("sha1")
    .update(key.export({ type: "spki", format: "der" }))
    .digest();
}

function distinguishedName(commonName: string): Buffer {
  return derSequence(derSet(derSequence(derObjectId("2.5.4.3"), derUtf8(commonName))));
}

function nameFromCertificate(pem: string): Buffer {
  const [, commonName = ""] = /^CN=(.*)$/m.exec(new X509Certificate(pem).subject) ?? [];
  return distinguishedName(commonName);
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return isCritical
    ? derSequence(derObjectId(id), derBoolean(true), derOctets(value))
    : derSequence(derObjectId(id), derOctets(value));
}

function alternativeName(host: string): Buffer {
  switch (isIP(host)) {
    case 0:
      return derValue(0x82, Buffer.from(host));
    case 4:
      return derValue(0x87, Buffer.from(host.split(".").map(Number)));
    default:
      return derValue(0x87, Buffer.from(expandIpv6(host).flatMap((group) => [group >> 8, group & 255])));
  }
}
