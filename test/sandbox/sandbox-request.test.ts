import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ErrorCode, RequestError } from "../../src/protocol/errors.ts";
import { parseSandboxIntent } from "../../src/sandbox/sandbox-request.ts";

/** An intent as the real client sends it. */
function recorded(name: string): Record<string, unknown> {
  const path = new URL(`../fixtures/sandbox/codex-0.166.0-${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).sandbox;
}

const refuses = (intent: unknown, message: string) =>
  assert.throws(
    () => parseSandboxIntent(intent),
    (error) =>
      error instanceof RequestError && error.code === ErrorCode.invalidParams && error.message === message,
    JSON.stringify(intent),
  );
const CANNOT = "sandbox intent cannot be enforced on this executor";

test("understands what the real client asks for in read-only mode", () => {
  assert.deepEqual(parseSandboxIntent(recorded("read-only")), {
    type: "walls",
    files: {
      type: "restricted",
      entries: [{ place: { type: "root" }, access: "read", missing: "enforce" }],
    },
    network: false,
    cwd: "/srv/workspace",
    workspaceRoots: ["/srv/workspace"],
    temporaryDirectories: null,
    privateTmp: false,
    lastingTmp: null,
  });
});

test("understands what the real client asks for in workspace-write mode", () => {
  const intent = parseSandboxIntent(recorded("workspace-write"));
  assert.ok(intent.type === "walls" && intent.files.type === "restricted");
  assert.equal(intent.network, false);
  assert.deepEqual(
    intent.files.entries.map((entry) => [entry.place, entry.access, entry.missing]),
    [
      [{ type: "root" }, "read", "enforce"],
      [{ type: "workspace", subpath: null }, "write", "enforce"],
      [{ type: "slashTmp" }, "write", "enforce"],
      [{ type: "tmpdir" }, "write", "enforce"],
      [{ type: "workspace", subpath: ".git" }, "read", "skip"],
      [{ type: "workspace", subpath: ".agents" }, "read", "skip"],
      [{ type: "workspace", subpath: ".codex" }, "read", "skip"],
      [{ type: "workspace", subpath: ".aws" }, "read", "skip"],
    ],
  );
});

test("understands further writable roots and an open network", () => {
  const intent = parseSandboxIntent(recorded("workspace-write-network"));
  assert.ok(intent.type === "walls" && intent.files.type === "restricted");
  assert.equal(intent.network, true);
  assert.deepEqual(intent.workspaceRoots, ["/srv/workspace", "/srv/extra"]);
  const places = intent.files.entries.map((entry) => entry.place);
  assert.ok(places.some((place) => place.type === "path" && place.path === "/srv/extra"));
});

test("asks for no walls where none are wanted", () => {
  const open = [
    { type: "disabled" },
    { type: "external", network: "enabled" },
    { type: "managed", file_system: { type: "unrestricted" }, network: "enabled" },
  ];
  for (const permissions of open)
    assert.deepEqual(parseSandboxIntent({ permissions, windowsSandboxLevel: "disabled" }), { type: "none" });
});

test("restricts the network of a process whose files another sandbox restricts", () => {
  const permissions = { type: "external", network: "restricted" };
  const intent = parseSandboxIntent({ permissions, windowsSandboxLevel: "disabled" });
  assert.ok(intent.type === "walls");
  assert.deepEqual([intent.files.type, intent.network], ["unrestricted", false]);
});

test("names a required field that is missing", () => {
  refuses({}, "missing field `permissions`");
  refuses({ permissions: { type: "disabled" }, workspaceRoots: [] }, "missing field `windowsSandboxLevel`");
  const wrap = (permissions: unknown) => ({ permissions, windowsSandboxLevel: "disabled" });
  refuses(wrap({}), "missing field `type`");
  refuses(wrap({ type: "managed", network: "enabled" }), "missing field `file_system`");
  refuses(wrap({ type: "external" }), "missing field `network`");
});

test("refuses unknown members instead of ignoring them", () => {
  const wrap = (permissions: unknown) => ({ permissions, windowsSandboxLevel: "disabled" });
  const entry = (path: unknown, more = {}) =>
    wrap({
      type: "managed",
      file_system: { type: "restricted", entries: [{ path, access: "read", ...more }] },
      network: "restricted",
    });
  const root = { type: "special", value: { kind: "root" } };
  refuses(wrap({ type: "somethingNew" }), CANNOT);
  refuses(wrap({ type: "external", network: "allowlist" }), CANNOT);
  refuses(entry({ type: "glob_pattern", pattern: "**/*.env" }, { access: "deny" }), CANNOT);
  refuses(entry({ type: "special", value: { kind: "somewhere" } }), CANNOT);
  refuses(entry({ type: "special", value: { kind: "project_roots", subpath: "../up" } }), CANNOT);
  refuses(entry(root, { access: "append" }), CANNOT);
  refuses(entry(root, { missing_path_behavior: "create" }), CANNOT);
});

test("says what kind of value stands in the wrong place", () => {
  refuses(5, "invalid type: number, expected struct FileSystemSandboxContext");
  const entries = { type: "restricted", entries: {} };
  const permissions = { type: "managed", file_system: entries, network: "enabled" };
  refuses({ permissions, windowsSandboxLevel: "disabled" }, "invalid type: map, expected a sequence");
});
