import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withStartErrors } from "../../../src/client/process/start-error.ts";
import { RequestError } from "../../../src/protocol/errors.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";

const NO_ENTRY = "No such file or directory (os error 2)";

interface Case {
  argv: string[];
  cwd?: string;
  /** Files of the host; absent if the check fails. */
  files?: string[];
  message?: string;
}

async function failedStart({ argv, cwd, files, message = NO_ENTRY }: Case): Promise<ExecServerError> {
  const exists = async (path: string) => {
    if (!files) throw new Error("not supported");
    return files.includes(path);
  };
  const cause = new RequestError(-32603, message);
  const error = await withStartErrors({ argv, cwd, exists }, () => Promise.reject(cause)).then(
    () => assert.fail("the start succeeded"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ExecServerError);
  assert.equal(error.cause, cause);
  assert.deepEqual([error.method, error.argv, error.rpcCode], ["process/start", argv, -32603]);
  assert.match(error.stack ?? "", /failedStart/);
  return error;
}

async function failure(one: Case): Promise<[message: string, code: string, path: string | undefined]> {
  const { message, code, path } = await failedStart(one);
  return [message, code, path];
}

describe("withStartErrors", () => {
  test("returns the result of a start", async () => {
    const start = { argv: ["true"], cwd: "/", exists: async () => true };
    assert.equal(await withStartErrors(start, async () => "started"), "started");
  });

  test("names a missing directory", async () => {
    assert.deepEqual(await failure({ argv: ["make"], cwd: "/gone", files: [] }), [
      "cannot start `make` in /gone: there is no such directory",
      "ENOENT",
      "/gone",
    ]);
  });

  test("names a file that is not a directory", async () => {
    const message = "Not a directory (os error 20)";
    assert.deepEqual(await failure({ argv: ["make"], cwd: "/etc/passwd", message }), [
      "cannot start `make` in /etc/passwd: it is not a directory",
      "ENOTDIR",
      "/etc/passwd",
    ]);
    assert.deepEqual(await failure({ argv: ["make"], message }), [message, "ENOTDIR", undefined]);
  });

  test("names a missing program, also if the check for files fails", async () => {
    const missing = ["no such program: `mak`", "ENOENT", undefined];
    assert.deepEqual(await failure({ argv: ["mak"], cwd: "/", files: ["/"] }), missing);
    assert.deepEqual(await failure({ argv: ["mak"], cwd: "/" }), missing);
    assert.deepEqual(await failure({ argv: ["mak"] }), missing);
    assert.deepEqual(await failure({ argv: ["/bin/mak"], cwd: "/" }), [
      "no such program: `/bin/mak`",
      "ENOENT",
      "/bin/mak",
    ]);
  });

  test("names a script whose interpreter is missing", async () => {
    assert.deepEqual(await failure({ argv: ["/opt/tool"], files: ["/opt/tool"] }), [
      "the interpreter of `/opt/tool` was not found",
      "ENOENT",
      "/opt/tool",
    ]);
    // Without a leading slash, the path depends on the server's directory.
    const relative = await failure({ argv: ["opt/tool"], files: ["opt/tool"] });
    assert.equal(relative[0], "no such program: `opt/tool`");
  });

  test("names a missing shell, but only for a shell with a script", async () => {
    for (const argv of [
      ["zsh", "-c", "ls"],
      ["/bin/bash", "-lc", "ls"],
    ])
      assert.equal((await failure({ argv, files: ["/bin/bash"] }))[0], `no such shell: \`${argv[0]}\``);
    for (const argv of [["zsh"], ["zsh", "-x"], ["gcc", "-c"], ["zsh", "x-c"], ["./sh-tool", "-c"]])
      assert.equal((await failure({ argv, files: [] }))[0], `no such program: \`${argv[0]}\``);
  });

  test("names an executable that may not be run", async () => {
    const message = "Permission denied (os error 13)";
    assert.deepEqual(await failure({ argv: ["/etc/passwd"], cwd: "/", message }), [
      "permission to run `/etc/passwd` was denied",
      "EACCES",
      "/etc/passwd",
    ]);
  });

  test("keeps the text of other failures", async () => {
    const message = "cgroup limit reached";
    assert.deepEqual(await failure({ argv: ["make"], cwd: "/gone", files: [], message }), [
      message,
      "INTERNAL",
      undefined,
    ]);
  });

  test("does not change errors other than call failures", async () => {
    const bug = new TypeError("a bug");
    const start = { argv: ["true"], cwd: "/", exists: async () => false };
    await assert.rejects(
      withStartErrors(start, () => Promise.reject(bug)),
      bug,
    );
  });
});
