import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ErrorCode, RequestError } from "../../src/protocol/errors.ts";
import { parseSandboxRequest } from "../../src/sandbox/sandbox-request.ts";

/** A recorded request of the Codex client. */
function recorded(name: string): Record<string, unknown> {
  const path = new URL(`../fixtures/sandbox/codex-0.166.0-${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).sandbox;
}

const rejects = (request: unknown, message: string) =>
  assert.throws(
    () => parseSandboxRequest(request),
    (error) => error instanceof RequestError && error.code === ErrorCode.invalidParams && error.message === message,
    JSON.stringify(request),
  );
const UNENFORCEABLE = "sandbox intent cannot be enforced on this executor";

test("parseSandboxRequest parses the request of the Codex client in read-only mode", () => {
  assert.deepEqual(parseSandboxRequest(recorded("read-only")), {
    type: "sandboxed",
    files: {
      type: "restricted",
      entries: [{ location: { type: "root" }, access: "read", missing: "enforce" }],
    },
    network: false,
    cwd: "/srv/workspace",
    workspaceRoots: ["/srv/workspace"],
    temporaryDirectories: null,
    privateTmp: false,
    sharedTmp: null,
    protectStartUpFiles: false,
  });
});

test("parseSandboxRequest parses the request of the Codex client in workspace-write mode", () => {
  const request = parseSandboxRequest(recorded("workspace-write"));
  assert.ok(request.type === "sandboxed" && request.files.type === "restricted");
  assert.equal(request.network, false);
  assert.deepEqual(
    request.files.entries.map((entry) => [entry.location, entry.access, entry.missing]),
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

test("parseSandboxRequest parses additional writable roots and network access", () => {
  const request = parseSandboxRequest(recorded("workspace-write-network"));
  assert.ok(request.type === "sandboxed" && request.files.type === "restricted");
  assert.equal(request.network, true);
  assert.deepEqual(request.workspaceRoots, ["/srv/workspace", "/srv/extra"]);
  const locations = request.files.entries.map((entry) => entry.location);
  assert.ok(locations.some((location) => location.type === "path" && location.path === "/srv/extra"));
});

test("parseSandboxRequest returns `none` for a request without restrictions", () => {
  const open = [
    { type: "disabled" },
    { type: "external", network: "enabled" },
    { type: "managed", file_system: { type: "unrestricted" }, network: "enabled" },
  ];
  for (const permissions of open)
    assert.deepEqual(parseSandboxRequest({ permissions, windowsSandboxLevel: "disabled" }), { type: "none" });
});

test("parseSandboxRequest restricts the network if the client restricts the files itself", () => {
  const permissions = { type: "external", network: "restricted" };
  const request = parseSandboxRequest({ permissions, windowsSandboxLevel: "disabled" });
  assert.ok(request.type === "sandboxed");
  assert.deepEqual([request.files.type, request.network], ["unrestricted", false]);
});

test("parseSandboxRequest names a missing required field", () => {
  rejects({}, "missing field `permissions`");
  rejects({ permissions: { type: "disabled" }, workspaceRoots: [] }, "missing field `windowsSandboxLevel`");
  const wrap = (permissions: unknown) => ({ permissions, windowsSandboxLevel: "disabled" });
  rejects(wrap({}), "missing field `type`");
  rejects(wrap({ type: "managed", network: "enabled" }), "missing field `file_system`");
  rejects(wrap({ type: "external" }), "missing field `network`");
});

test("parseSandboxRequest rejects unknown values instead of ignoring them", () => {
  const wrap = (permissions: unknown) => ({ permissions, windowsSandboxLevel: "disabled" });
  const entry = (path: unknown, more = {}) =>
    wrap({
      type: "managed",
      file_system: { type: "restricted", entries: [{ path, access: "read", ...more }] },
      network: "restricted",
    });
  const root = { type: "special", value: { kind: "root" } };
  rejects(wrap({ type: "somethingNew" }), UNENFORCEABLE);
  rejects(wrap({ type: "external", network: "allowlist" }), UNENFORCEABLE);
  rejects(entry({ type: "glob_pattern", pattern: "**/*.env" }, { access: "deny" }), UNENFORCEABLE);
  rejects(entry({ type: "special", value: { kind: "somewhere" } }), UNENFORCEABLE);
  rejects(entry({ type: "special", value: { kind: "project_roots", subpath: "../up" } }), UNENFORCEABLE);
  rejects(entry(root, { access: "append" }), UNENFORCEABLE);
  rejects(entry(root, { missing_path_behavior: "create" }), UNENFORCEABLE);
});

test("parseSandboxRequest names the actual and the expected type of a wrong value", () => {
  rejects(5, "invalid type: number, expected struct FileSystemSandboxContext");
  const entries = { type: "restricted", entries: {} };
  const permissions = { type: "managed", file_system: entries, network: "enabled" };
  rejects({ permissions, windowsSandboxLevel: "disabled" }, "invalid type: map, expected a sequence");
});

test("parseSandboxRequest requests a sandbox for a managed network even if the profile restricts nothing", () => {
  for (const permissions of [
    { type: "disabled" },
    { type: "external", network: "enabled" },
    { type: "managed", file_system: { type: "unrestricted" }, network: "enabled" },
  ]) {
    const request = { permissions, windowsSandboxLevel: "disabled" };
    const parsed = parseSandboxRequest(request, { hasManagedNetwork: true });
    assert.ok(parsed.type === "sandboxed", permissions.type);
    assert.deepEqual([parsed.files, parsed.network], [{ type: "unrestricted" }, true]);
  }
});
