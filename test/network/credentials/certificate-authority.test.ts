import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { openAuthority } from "../../../src/network/credentials/authority-store.ts";
import { CertificateAuthority } from "../../../src/network/credentials/certificate-authority.ts";
import { derInteger, derObjectId, derTime } from "../../../src/network/credentials/der-writer.ts";

function scratch(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "procwire-authority-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const noFallback = () => assert.fail("the directory is usable");
const HOSTS = ["api.example", `${"a".repeat(60)}.${"b".repeat(60)}.example`, "192.0.2.7", "2001:db8::1", "::1"];

describe("DER writer", () => {
  test("encodes values as OpenSSL does", () => {
    assert.equal(derObjectId("1.2.840.10045.4.3.2").toString("hex"), "06082a8648ce3d040302");
    assert.equal(derInteger(Buffer.from([0, 0, 0x80])).toString("hex"), "02020080");
    assert.equal(derInteger(Buffer.from([0, 0])).toString("hex"), "020100");
    assert.equal(derTime(new Date("2049-12-31T23:59:59.5Z")).toString("latin1"), "\x17\x0d491231235959Z");
    assert.equal(derTime(new Date("2050-01-01T00:00:00Z")).toString("latin1"), "\x18\x0f20500101000000Z");
  });
});

describe("CertificateAuthority", () => {
  test("issues certificates that Node verifies for their host only", () => {
    const authority = CertificateAuthority.create();
    const root = new X509Certificate(authority.certificate);
    assert.ok(root.ca && root.checkIssued(root) && root.verify(root.publicKey));
    for (const host of HOSTS) {
      const leaf = new X509Certificate(authority.issue(host));
      assert.ok(!leaf.ca && leaf.checkIssued(root) && leaf.verify(root.publicKey), host);
      assert.ok(
        (host.includes(":") || /^\d/.test(host) ? leaf.checkIP(host) : leaf.checkHost(host)) !== undefined,
        host,
      );
      assert.equal(leaf.checkHost("other.example"), undefined);
      assert.ok(Date.parse(leaf.validTo) - Date.now() <= 24 * 3_600_000);
    }
  });

  test("issues certificates that `openssl verify -x509_strict` accepts", (t) => {
    const directory = scratch(t);
    const authority = CertificateAuthority.create();
    writeFileSync(join(directory, "ca.pem"), authority.certificate);
    for (const [index, host] of HOSTS.entries()) {
      const leaf = join(directory, `${index}.pem`);
      writeFileSync(leaf, authority.issue(host));
      const name = host.includes(":") || /^\d/.test(host) ? "-verify_ip" : "-verify_hostname";
      const arguments_ = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", join(directory, "ca.pem")];
      assert.match(execFileSync("openssl", [...arguments_, name, host, leaf], { encoding: "utf8" }), /: OK\n$/);
    }
  });

  test("renews the certificate of a host after half of its lifetime, or after the clock was set back", () => {
    const authority = CertificateAuthority.create();
    const now = Date.now();
    const hours = 3_600_000;
    const first = authority.contextFor("api.example", now);
    assert.equal(authority.contextFor("api.example", now + 11 * hours), first);
    assert.notEqual(authority.contextFor("other.example", now), first);
    const second = authority.contextFor("api.example", now + 13 * hours);
    assert.notEqual(second, first);
    assert.notEqual(authority.contextFor("api.example", now - hours), second);
  });

  test("is restored from its text, unless it expires soon", () => {
    const authority = CertificateAuthority.create();
    const restored = CertificateAuthority.parse(authority.serialize());
    assert.equal(restored?.certificate, authority.certificate);
    const root = new X509Certificate(authority.certificate);
    assert.ok(new X509Certificate(restored?.issue("api.example") ?? "").checkIssued(root));
    assert.equal(CertificateAuthority.parse(authority.serialize(), Date.now() + 3630 * 24 * 3_600_000), null);
    assert.equal(CertificateAuthority.parse("-----BEGIN"), null);
    assert.equal(
      CertificateAuthority.parse(
        `${authority.serialize().split("-----BEGIN CERT")[0]}${CertificateAuthority.create().certificate}`,
      ),
      null,
    );
  });
});

describe("openAuthority", () => {
  test("keeps the authority over a restart, with a key that only this user can read", (t) => {
    const directory = join(scratch(t), "state", "credentials");
    const first = openAuthority(directory, noFallback);
    const second = openAuthority(directory, noFallback);
    assert.equal(second.authority.certificate, first.authority.certificate);
    assert.equal(second.bundlePath, first.bundlePath);
    assert.equal(statSync(join(directory, "authority.pem")).mode & 0o777, 0o600);
    assert.equal(statSync(directory).mode & 0o777, 0o700);
    const bundle = readFileSync(first.bundlePath, "utf8");
    assert.ok(bundle.includes(first.authority.certificate.trim()));
    assert.ok(!bundle.includes("PRIVATE KEY"));
    assert.ok(bundle.split("-----BEGIN CERTIFICATE-----").length > 50, "has the certificates of the host");
    assert.equal(readdirSync(directory).length, 2);
  });

  test("replaces a file that is not an authority", (t) => {
    const directory = scratch(t);
    writeFileSync(join(directory, "authority.pem"), "damaged");
    const { authority } = openAuthority(directory, noFallback);
    assert.equal(openAuthority(directory, noFallback).authority.certificate, authority.certificate);
  });

  test("rejects a directory that other users can enter", (t) => {
    const directory = scratch(t);
    chmodSync(directory, 0o755);
    assert.throws(() => openAuthority(directory, noFallback), /must be a directory of this user with mode 0700/);
  });

  test("keeps the key in memory if the directory cannot be made", (t) => {
    const directory = scratch(t);
    writeFileSync(join(directory, "file"), "");
    const fallback = join(directory);
    const { bundlePath } = openAuthority(join(directory, "file", "credentials"), () => fallback);
    assert.equal(readdirSync(directory).length, 2);
    assert.ok(bundlePath.startsWith(directory));
  });
});
