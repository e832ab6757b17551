import assert from "node:assert/strict";
import { chmod, lstat, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import { parse } from "smol-toml";
import { addAllowedHost, allowHostInFile } from "../../../src/tools/network/allow-host.ts";
import { loadRulesFile } from "../../../src/tools/policy/rules-file.ts";

const add = (text: string, host = "a.test") => addAllowedHost(text, host, parse);

async function rulesFile(t: TestContext, text: string): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-rules-"));
  t.after(() => rm(directory, { recursive: true }));
  const file = path.join(directory, "rules.toml");
  await writeFile(file, text);
  return file;
}

describe("an always allowed host", () => {
  test("extends the list and keeps all other text", () => {
    const before =
      'default = "ask" # x\n\n[network] # hosts\ndefault = "ask"\nallow = ["b.test"] # known\n\n[[rule]]\nprefix = ["ls"]\ndecision = "allow"\n';
    assert.equal(add(before), before.replace('["b.test"]', '["a.test", "b.test"]'));
  });

  test("extends an empty list, a list on several lines, a section without a list, and a file without a section", () => {
    assert.equal(add("[network]\nallow = []\n"), '[network]\nallow = ["a.test"]\n');
    const lines = '[network]\nallow = [\n  # registries\n  "b.test",\n]\n';
    assert.equal(add(lines), '[network]\nallow = [\n  "a.test",\n  # registries\n  "b.test",\n]\n');
    assert.equal(add('[network]\ndefault = "ask"\n'), '[network]\nallow = ["a.test"]\ndefault = "ask"\n');
    assert.equal(add('default = "ask"'), 'default = "ask"\n\n[network]\nallow = ["a.test"]\n');
    assert.equal(add("[other]\nallow = []\n[network]\n"), '[other]\nallow = []\n[network]\nallow = ["a.test"]\n');
  });

  test("leaves a file that lists the host", () => {
    const text = '[network]\nallow = ["A.test."]\n';
    assert.equal(add(text), text);
  });

  test("rejects a form that the text edit cannot extend", () => {
    const message = 'cannot extend `allow` of [network]; add "a.test" to the list by hand';
    for (const text of [
      'network = { allow = ["b.test"] }\n',
      'network.allow = ["b.test"]\n',
      '["network"]\nallow = []\n',
    ])
      assert.throws(() => add(text), { message }, text);
    assert.throws(() => add('text = """\n[network]\nallow = [\n"""\n'), { message });
  });

  test("is added without any other change for every file", () => {
    const line = fc.constantFrom(
      "[network]",
      "allow = []",
      'allow = ["b.test"]',
      "# [network]",
      "[[rule]]",
      'x = "y"',
      "",
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 6 }), (lines) => {
        const text = lines.join("\n");
        let before: Record<string, unknown>;
        try {
          before = parse(text);
          if (before.network !== undefined) JSON.stringify(before.network);
        } catch {
          return;
        }
        let changed: string;
        try {
          changed = add(text);
        } catch {
          return;
        }
        const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
        const { network: _, ...others } = before;
        const { network, ...othersAfter } = parse(changed);
        assert.deepEqual(plain(othersAfter), plain(others));
        assert.ok(JSON.stringify(network).includes('"a.test"'));
        for (const kept of lines.filter((text) => text.startsWith("#"))) assert.ok(changed.includes(kept));
      }),
      { numRuns: 1000 },
    );
  });

  test("replaces the file that a link leads to, atomically and with its mode", async (t) => {
    const file = await rulesFile(t, "# mine\n");
    await chmod(file, 0o640);
    const link = `${file}.link`;
    await symlink(file, link);
    const { allowHost } = await loadRulesFile(link);
    await Promise.all(["a.test", "b.test", "c.test"].map((host) => allowHost?.(host)));
    assert.match(await readFile(file, "utf8"), /^# mine\n/);
    assert.deepEqual((await loadRulesFile(file)).network?.allow.toSorted(), ["a.test", "b.test", "c.test"]);
    assert.equal((await stat(file)).mode & 0o777, 0o640);
    assert.ok((await lstat(link)).isSymbolicLink());
    assert.deepEqual((await readdir(path.dirname(file))).toSorted(), ["rules.toml", "rules.toml.link"]);
  });

  test("is not written through a link that replaces the loaded file, nor into a file that cannot be parsed", async (t) => {
    const file = await rulesFile(t, "# mine\n");
    const other = `${file}.other`;
    await writeFile(other, "# other\n");
    const { allowHost } = await loadRulesFile(file);
    await rm(file);
    await assert.rejects(allowHost?.("a.test") ?? Promise.resolve(), { code: "ENOENT" });
    await symlink(other, file);
    await assert.rejects(allowHost?.("a.test") ?? Promise.resolve(), { code: "ELOOP" });
    assert.equal(await readFile(other, "utf8"), "# other\n");
    await rm(file);
    await writeFile(file, "[network\n");
    await assert.rejects(allowHostInFile(file, "a.test"));
    assert.equal(await readFile(file, "utf8"), "[network\n");
    assert.deepEqual((await readdir(path.dirname(file))).toSorted(), ["rules.toml", "rules.toml.other"]);
  });

  test("is stored by the policy of a rules file", async (t) => {
    const file = await rulesFile(t, '[network]\ndefault = "ask"\n');
    const policy = await loadRulesFile(file);
    await policy.allowHost?.("a.test");
    assert.deepEqual((await loadRulesFile(file)).network, {
      fallback: "ask",
      allow: ["a.test"],
      ask: [],
      deny: [],
      ports: null,
      methods: null,
    });
  });

  test("names a rules file that cannot be read", async (t) => {
    const directory = path.dirname(await rulesFile(t, ""));
    await assert.rejects(loadRulesFile(directory), { message: new RegExp(`^rules file ${directory}: EISDIR: `) });
    const missing = path.join(directory, "missing.toml");
    await assert.rejects(loadRulesFile(missing), { message: new RegExp(`^rules file ${missing}: ENOENT: `) });
  });

  test("names the file of an invalid section", async (t) => {
    const file = await rulesFile(t, '[network]\nallow = ["a.test:80"]\n');
    await assert.rejects(loadRulesFile(file), {
      message: `rules file ${file}: [network]: \`allow\`: \`a.test:80\` has a port; list ports separately`,
    });
  });
});
