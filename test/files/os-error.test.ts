import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { osErrorMessage, osRequestError, withOsErrors } from "../../src/files/os-error.ts";

const linux = process.platform === "linux" ? false : "error numbers are those of Linux";

test("osErrorMessage formats system errors as in the wire protocol, with their error number", { skip: linux }, () => {
  assert.equal(osErrorMessage("ENOENT"), "No such file or directory (os error 2)");
  assert.equal(osErrorMessage("ELOOP"), "Symbolic link loop (os error 40)");
  assert.equal(osErrorMessage("EADDRINUSE"), "Address in use (os error 98)");
  assert.equal(osErrorMessage("ENOTEMPTY"), "Directory not empty (os error 39)");
  assert.equal(osErrorMessage("E2BIG"), "Argument list too long (os error 7)");
  assert.equal(osErrorMessage("ENOEXEC"), "Exec format error (os error 8)");
});

test("osErrorMessage returns an unknown error name unchanged", () => {
  assert.equal(osErrorMessage("EODD"), "EODD");
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
  test(`osRequestError maps ${name} to error code ${code}`, () => {
    const converted = osRequestError(Object.assign(new Error("x"), { code: name }));
    assert.ok(converted instanceof Error && "code" in converted);
    assert.equal(converted.code, code);
  });
}

test("withOsErrors converts a failed call to a RequestError with the system error as cause", async () => {
  await assert.rejects(
    withOsErrors(() => readFile("/no/such/file")),
    (error: Error) =>
      error.name === "RequestError" && error.cause instanceof Error && /ENOENT/.test(error.cause.message),
  );
});

test("withOsErrors and osRequestError leave other errors unchanged", async () => {
  const bug = new TypeError("a bug");
  await assert.rejects(
    withOsErrors(() => Promise.reject(bug)),
    (error) => error === bug,
  );
  const odd = Object.assign(new Error("x"), { code: "ERR_INVALID_ARG_TYPE" });
  assert.equal(osRequestError(odd), odd);
});
