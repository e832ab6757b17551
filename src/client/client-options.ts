/** Schemas of the client's options. The compiler compares each with the interface that it validates. */

import type { EventLogLimits } from "../exec/log/event-log.ts";
import { inputData } from "../exec/options/input-bytes.ts";
import {
  abortSignal,
  anyObject,
  callback,
  count,
  described,
  duration,
  either,
  flag,
  listOf,
  milliseconds,
  number,
  type OptionFields,
  oneOf,
  optionsOf,
  required,
  smallCount,
  text,
} from "../exec/options/option-schema.ts";
import {
  clockKind,
  signalKind,
  terminalSizeKind,
  terminateModeKind,
  variables,
} from "../exec/options/process-options.ts";
import type { BrowserClientOptions } from "./browser.ts";
import type { CopyDestination, CopyEndpoint, CopyFilesOptions } from "./copy/copy-types.ts";
import type { ExecServerClientOptions, KillOptions, ShareOptions } from "./exec-server-client.ts";
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

const signal = abortSignal;
const role = oneOf("viewer", "driver");

const reconnectPolicy = optionsOf<Partial<ReconnectPolicy>>({
  deadlineMs: duration,
  firstDelayMs: duration,
  maxDelayMs: duration,
  newSession: flag,
});

export const clientFields: OptionFields<ExecServerClientOptions> = {
  signal,
  clientName: text,
  initializeTimeoutMs: duration,
  reconnect: either(
    "true, false or an object with deadlineMs, firstDelayMs, maxDelayMs or newSession",
    flag,
    reconnectPolicy,
  ),
  resumeSessionId: text,
  takeOver: flag,
  onConnectionState: callback,
  logLimits: optionsOf<Partial<EventLogLimits>>({
    retainedBytes: count,
    retainedChunks: count,
    headBytes: count,
    tailBytes: count,
  }),
  trace: callback,
  clock: clockKind,
  newId: callback,
};
export const clientOptions = optionsOf(clientFields);

// Not in browser.ts: bundlers drop this module if it is unused, but not a call at the top of the entry point.
export const browserOptions = optionsOf<BrowserClientOptions>({
  ...clientFields,
  url: required(text),
  connectTimeoutMs: duration,
  openSocket: callback,
});

// ---- processes

export const attachOptions = optionsOf<AttachOptions>({
  signal,
  role,
  processId: text,
  size: terminalSizeKind,
  screen: flag,
});
export const listOptions = optionsOf<ListOptions>({ signal, allSessions: flag, usage: flag });
export const killOptions = optionsOf<KillOptions>({ signal: signalKind, mode: terminateModeKind });
export const shareOptions = optionsOf<ShareOptions>({ signal, role: required(role), ttlMs: required(milliseconds) });

// ---- files

export const pathKind = described(text, "an absolute path or a file: URI");

/** Modes of an opened file. */
export const openModeKind = oneOf("read", "replace");

export const pathsKind = either("a path or an array of paths", pathKind, listOf(pathKind, "an array of paths"));

const followFields: OptionFields<FollowOptions> = { signal, followSymlinks: flag };
export const followOptions = optionsOf(followFields);
export const createDirectoryOptions = optionsOf<CreateDirectoryOptions>({ ...followFields, recursive: flag });
export const removeOptions = optionsOf<RemoveOptions>({ ...followFields, recursive: flag, force: flag });
export const copyOptions = optionsOf<CopyOptions>({ signal, recursive: flag });
export const scanOptions = optionsOf<ScanOptions>({ ...followFields, followLinks: flag });
export const attributeOptions = optionsOf<AttributeOptions>({ ...followFields, mode: count, modifiedAtMs: number });
export const walkOptions = optionsOf<WalkOptions>({
  signal,
  maxDepth: count,
  maxDirectories: count,
  maxEntries: count,
  followDirectorySymlinks: flag,
  pruneHiddenDirectories: flag,
});

const endpointFields: OptionFields<CopyEndpoint> = { files: required(anyObject), path: required(pathKind) };
export const copyEndpoint = optionsOf(endpointFields);
export const copyDestination = optionsOf<CopyDestination>({ ...endpointFields, within: pathKind });
export const copyFilesOptions = optionsOf<CopyFilesOptions>({
  signal,
  links: oneOf("keep", "follow", "skip"),
  checksum: flag,
  onProgress: callback,
  onPartialKept: callback,
});

// ---- network

export const httpRequest = optionsOf<HttpRequest>({
  url: required(text),
  method: text,
  headers: variables,
  body: inputData,
  timeoutMs: milliseconds,
  redirect: oneOf("follow", "stop"),
  signal,
});

export const portKind = smallCount;
