import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { findPlaceholders, PLACEHOLDER_HOST, releaseProblems } from "../../scripts/check/check-release.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const MANIFEST = { name: "procwire", version: "1.2.3", dependencies: { ajv: "8.20.0" } };
const LOCKFILE = {
  packages: { "": MANIFEST, "node_modules/ajv": { version: "8.20.0", integrity: "sha512-AAAA" } },
};

/** A committed working copy that meets every release condition. */
class WorkingCopy implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "procwire-release-"));

  constructor() {
    this.write("package.json", JSON.stringify(MANIFEST));
    this.write("package-lock.json", JSON.stringify(LOCKFILE));
    this.write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - 2026-11-17\n\n## 1.2.2 - 2026-10-01\n");
    this.#git("init", "--quiet");
    this.commit();
  }

  write(file: string, text: string): void {
    writeFileSync(join(this.path, file), text);
  }

  commit(): void {
    this.#git("add", "--all");
    this.#git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "-m", "test");
  }

  #git(...args: string[]): void {
    execFileSync("git", args, { cwd: this.path, stdio: "ignore" });
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** The problems after one file of a releasable working copy was replaced. */
function problemsWith(file: string, text: string): string[] {
  using copy = new WorkingCopy();
  copy.write(file, text);
  copy.commit();
  return releaseProblems(copy.path);
}

describe("check-release", () => {
  test("accepts a working copy that meets every condition", () => {
    using copy = new WorkingCopy();
    assert.deepEqual(releaseProblems(copy.path), []);
  });

  test("reports a placeholder address with its file and line", () => {
    const text = `# Security\n\nWrite to security@${PLACEHOLDER_HOST}.\n`;
    assert.deepEqual(problemsWith("SECURITY.md", text), ["SECURITY.md:3: replace the placeholder address"]);
  });

  for (const heading of ["1.2.3 - unreleased", "1.2.2 - 2026-10-01", "1.2.3 - 2026-13-40"])
    test(`rejects a changelog whose first section is "${heading}"`, () => {
      assert.deepEqual(problemsWith("CHANGELOG.md", `# Changelog\n\n## ${heading}\n`), [
        `CHANGELOG.md: first section is \`${heading}\`; expected \`1.2.3 - YYYY-MM-DD\``,
      ]);
    });

  test("rejects a lockfile that differs from package.json", () => {
    const manifest = { ...MANIFEST, dependencies: { ajv: "8.21.0" } };
    assert.deepEqual(problemsWith("package.json", JSON.stringify(manifest)), [
      "package-lock.json: `dependencies` differs from package.json; run `npm install`",
    ]);
  });

  test("rejects lockfile entries that name a registry or have no checksum", () => {
    const packages = {
      "": MANIFEST,
      "node_modules/a": { integrity: "sha512-AAAA", resolved: "https://localhost/a.tgz" },
      "node_modules/b": {},
    };
    assert.deepEqual(problemsWith("package-lock.json", JSON.stringify({ packages })), [
      "package-lock.json: entry `node_modules/a` names a registry",
      "package-lock.json: entry `node_modules/b` has no checksum",
    ]);
  });

  test("rejects uncommitted files", () => {
    using copy = new WorkingCopy();
    appendFileSync(join(copy.path, "CHANGELOG.md"), "\n");
    copy.write("notes.txt", "");
    assert.deepEqual(releaseProblems(copy.path), ["git: 2 uncommitted files; commit or remove them"]);
  });

  test("stops `npm run pack:all -- --release` before it builds anything", () => {
    using copy = new WorkingCopy();
    copy.write("SECURITY.md", `security@${PLACEHOLDER_HOST}\n`);
    copy.commit();
    const { status, stderr } = spawnSync(process.execPath, [join(ROOT, "scripts/build/pack-all.ts"), "--release"], {
      cwd: copy.path,
      encoding: "utf8",
    });
    assert.equal(status, 1);
    assert.match(stderr, /^SECURITY\.md:1: .*\ncannot release: 1 problems; see RELEASING\.md\n$/);
    assert.ok(!existsSync(join(copy.path, "release")));
  });
});

describe("RELEASING.md", () => {
  test("lists every file with a placeholder address, and no other", () => {
    const table = readFileSync(join(ROOT, "RELEASING.md"), "utf8").split("## Placeholders")[1] ?? "";
    const listed = table
      .split("\n")
      .filter((line) => line.includes(PLACEHOLDER_HOST) && line.startsWith("|"))
      .flatMap((line) => [...(line.split("|")[3] ?? "").matchAll(/`([^`]+)`/g)].map(([, file]) => file));
    const found = findPlaceholders(ROOT).map(({ file }) => file);
    assert.deepEqual([...new Set(listed)].sort(), [...new Set(found)].filter((file) => file !== "RELEASING.md").sort());
  });
});
