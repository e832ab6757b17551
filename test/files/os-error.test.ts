import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { answeringOsErrors, osErrorText, osRequestError } from "../../src/files/os-error.ts";

const linux = process.platform === "linux" ? false : "error numbers are those of Linux";

test("system errors are reported in the protocol's own words, with their number", { skip: linux }, () => {
  assert.equal(osErrorText("ENOENT"), "No such file or directory (os error 2)");
  assert.equal(osErrorText("ELOOP"), "Symbolic link loop (os error 40)");
  assert.equal(osErrorText("EADDRINUSE"), "Address in use (os error 98)");
  assert.equal(osErrorText("ENOTEMPTY"), "Directory not empty (os error 39)");
  assert.equal(osErrorText("E2BIG"), "Argument list too long (os error 7)");
  assert.equal(osErrorText("ENOEXEC"), "Exec format error (os error 8)");
});

test("an unknown error name is passed on unchanged", () => {
  assert.equal(osErrorText("EODD"), "EODD");
});

const codes: [name: string, code: number][] = [
  ["ENOENT", -32004],
  ["EACCES", -32600],
  ["EPERM", -32600],
  ["EINVAL", -32600],
  ["EISDIR", -32603],
  ["EIO", -32603],
];
for (const [name, code] of codes) {
  test(`${name} answers with ${code}`, () => {
    const answer = osRequestError(Object.assign(new Error("x"), { code: name }));
    assert.ok(answer instanceof Error && "code" in answer);
    assert.equal(answer.code, code);
  });
}

test("a failed call answers, and keeps the system's error as its cause", async () => {
  await assert.rejects(
    answeringOsErrors(() => readFile("/no/such/file")),
    (error: Error) =>
      error.name === "RequestError" && error.cause instanceof Error && /ENOENT/.test(error.cause.message),
  );
});

test("an error that is not the system's is passed on unchanged", async () => {
  const bug = new TypeError("a bug");
  await assert.rejects(
    answeringOsErrors(() => Promise.reject(bug)),
    (error) => error === bug,
  );
  const odd = Object.assign(new Error("x"), { code: "ERR_INVALID_ARG_TYPE" });
  assert.equal(osRequestError(odd), odd);
});
