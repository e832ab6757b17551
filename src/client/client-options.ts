/** Schemas of the client's options. The compiler compares each with the interface that it validates. */

import { inputData } from "../exec/options/input-bytes.ts";
import * as option from "../exec/options/option-schema.ts";
import {
  argument,
  argvKind,
  clockKind,
  logLimitsKind,
  signalKind,
  terminalSizeKind,
  terminateModeKind,
  variables,
} from "../exec/options/process-options.ts";
import { isMethodName, type ParamsOf } from "../protocol/methods.ts";
import type { BrowserClientOptions } from "./browser.ts";
import type { CopyDestination, CopyEndpoint, CopyFilesOptions } from "./copy/copy-types.ts";
import type { ExecServerClientOptions, KillOptions, ProtocolCallOptions, ShareOptions } from "./exec-server-client.ts";
import type { ChecksumOptions, CommitOptions } from "./files/remote-file.ts";
import type {
  AttributeOptions,
  CopyOptions,
  CreateDirectoryOptions,
  FollowOptions,
  RemoveOptions,
  ScanOptions,
  WalkOptions,
} from "./files/remote-files.ts";
import type { HttpRequest } from "./network/remote-http.ts";
import type { AttachOptions } from "./process/attached-process.ts";
import type { ListOptions } from "./process/remote-backend.ts";
import type { ReconnectPolicy } from "./session/reconnect-policy.ts";

const { optionsOf, required } = option;

const signal = option.abortSignal;
const role = option.oneOf("viewer", "driver");

const reconnectPolicy = optionsOf<Partial<ReconnectPolicy>>(() => ({
  newSession: option.flag,
  ...option.each(option.duration, "deadlineMs", "firstDelayMs", "maxDelayMs"),
}));

export const clientFields: option.OptionFields<ExecServerClientOptions> = {
  signal,
  initializeTimeoutMs: option.duration,
  reconnect: option.either(
    "true, false or an object with deadlineMs, firstDelayMs, maxDelayMs or newSession",
    option.flag,
    reconnectPolicy,
  ),
  takeOver: option.flag,
  logLimits: logLimitsKind,
  clock: clockKind,
  ...option.each(option.text, "clientName", "resumeSessionId"),
  ...option.each(option.callback, "onConnectionState", "trace", "newId"),
};
export const clientOptions = optionsOf(() => clientFields);
export const clientKind = option.objectWith("an ExecServerClient", "call", "close");
export const serverKind = option.objectWith("a server in this process", "connectInProcess");
const methodKind = option.kind(
  "a method such as process/list",
  (value) => typeof value === "string" && isMethodName(value),
);
const protocolCallOptions = optionsOf<ProtocolCallOptions>(() => ({
  signal,
  timeoutMs: option.milliseconds,
  resend: option.oneOf("always", "sameServer", "unsent"),
}));

/** Throws an `EINVAL` error unless these are valid arguments of `ExecServerClient.call`. */
export function checkProtocolCall(method: unknown, params: unknown, options: unknown): void {
  option.checkArgument("call", "method", method, methodKind);
  option.checkArgument("call", "params", params, option.anyObject);
  option.checkOptions("call", options, protocolCallOptions);
}

// Not in browser.ts: bundlers drop this module if it is unused, but not a call at the top of the entry point.
export const browserOptions = optionsOf<BrowserClientOptions>(() => ({
  ...clientFields,
  url: required(option.text),
  connectTimeoutMs: option.duration,
  openSocket: option.callback,
}));

// ---- processes

export const attachOptions = optionsOf<AttachOptions>(() => ({
  signal,
  role,
  processId: option.text,
  size: terminalSizeKind,
  screen: option.flag,
}));
export const listOptions = optionsOf<ListOptions>(() => ({ signal, allSessions: option.flag, usage: option.flag }));
export const killOptions = optionsOf<KillOptions>(() => ({ signal: signalKind, mode: terminateModeKind }));
export const shareOptions = optionsOf<ShareOptions>(() => ({
  signal,
  role: required(role),
  ttlMs: required(option.milliseconds),
}));

export const v0StartParams = optionsOf<ParamsOf<"command/exec">>(() => ({
  argv: required(argvKind),
  cwd: required(option.text),
  env: required(variables),
  tty: required(option.flag),
  arg0: option.nullOr(option.text),
}));

// ---- files

export const pathKind = option.described(argument, "an absolute path or a file: URI");

/** Modes of an opened file. */
export const openModeKind = option.oneOf("read", "replace");

const paths = option.listOf(pathKind, "an array of paths");
const nonEmpty = option.kind("a path or a non-empty array of paths", (value) => Object(value).length !== 0);
/** An empty array is invalid, because a wait for no path would never end. */
export const pathsKind: option.OptionKind = {
  form: nonEmpty.form,
  findProblem: (value) =>
    nonEmpty.findProblem(value) ?? option.either(nonEmpty.form, pathKind, paths).findProblem(value),
};

const followFields: option.OptionFields<FollowOptions> = { signal, followSymlinks: option.flag };
export const followOptions = optionsOf(() => followFields);
export const createDirectoryOptions = optionsOf<CreateDirectoryOptions>(() => ({
  ...followFields,
  recursive: option.flag,
}));
export const removeOptions = optionsOf<RemoveOptions>(() => ({
  ...followFields,
  recursive: option.flag,
  force: option.flag,
}));
export const copyOptions = optionsOf<CopyOptions>(() => ({ signal, recursive: option.flag }));
export const scanOptions = optionsOf<ScanOptions>(() => ({ ...followFields, followLinks: option.flag }));
export const attributeOptions = optionsOf<AttributeOptions>(() => ({
  ...followFields,
  mode: option.count,
  modifiedAtMs: option.number,
}));
export const checksumOptions = optionsOf<ChecksumOptions>(() => ({
  signal,
  gmacKey: option.kind("a Uint8Array of 16 bytes", (value) => value instanceof Uint8Array && value.length === 16),
}));
export const commitOptions = optionsOf<CommitOptions>(() => ({
  size: required(option.count),
  digest: required(option.text),
  mode: option.count,
  modifiedAtMs: option.number,
  followSymlinks: option.flag,
}));
/** Content of `writeAtomic`. */
export const putContent = option.optionsByMember(
  "target",
  optionsOf<{ target: string }>(() => ({ target: required(option.text) })),
  optionsOf<{ chunk: Uint8Array }>(() => ({ chunk: required(inputData) }), "{ chunk } or { target }"),
);
export const walkOptions = optionsOf<WalkOptions>(() => ({
  signal,
  ...option.each(option.count, "maxDepth", "maxDirectories", "maxEntries"),
  ...option.each(option.flag, "followDirectorySymlinks", "pruneHiddenDirectories"),
}));

const endpointFields: option.OptionFields<CopyEndpoint> = {
  files: required(option.anyObject),
  path: required(pathKind),
};
export const copyEndpoint = optionsOf(() => endpointFields);
export const copyDestination = optionsOf<CopyDestination>(() => ({ ...endpointFields, within: pathKind }));
export const copyFilesOptions = optionsOf<CopyFilesOptions>(() => ({
  signal,
  links: option.oneOf("keep", "follow", "skip"),
  checksum: option.flag,
  ...option.each(option.callback, "onProgress", "onPartialKept"),
}));

// ---- network

export const httpRequest = optionsOf<HttpRequest>(() => ({
  url: required(option.text),
  method: option.text,
  headers: variables,
  body: inputData,
  timeoutMs: option.milliseconds,
  redirect: option.oneOf("follow", "stop"),
  signal,
}));

export const portKind = option.smallCount;
export const forwardAddress = option.optionsByMember(
  "path",
  optionsOf<{ path: string }>(() => ({ path: required(option.text) })),
  optionsOf<{ host: string; port: number }>(
    () => ({ host: required(option.text), port: required(portKind) }),
    "{ host, port } or { path }",
  ),
);
