/** Schemas of the options that local and remote processes share. */

import type { Clock } from "../../async/clock.ts";
import { managedNetwork, networkProxy } from "../../protocol/network/network-schemas.ts";
import { processLabels, processName } from "../../protocol/process-labels.ts";
import { LIMIT_NAMES, type LimitName, SIGNAL_NAME } from "../../protocol/process-schemas.ts";
import type { ProcessLimits } from "../backend/process-limits.ts";
import type {
  CallOptions,
  EnvPolicy,
  EventsOptions,
  ReadParams,
  SecretGuard,
  StartParams,
  TerminalSize,
  WaitParams,
  WriteOptions,
} from "../exec-process.ts";
import type { EventLogLimits } from "../log/event-log.ts";
import type { CollectOptions } from "../run/collect-output.ts";
import type { LinesOptions } from "../run/lines.ts";
import type { RunOptions } from "../run/run-program.ts";
import type { StreamOptions } from "../run/stream-bytes.ts";
import type { WaitForOptions } from "../wait/wait-for-output.ts";
import { inputData } from "./input-bytes.ts";
import * as option from "./option-schema.ts";

const { optionsOf, required } = option;

const pathForm = "an absolute path or a file: URI";
const nulFree = option.kind(
  "a string without NUL bytes",
  (value) => typeof value === "string" && !value.includes("\0"),
);
/** A string that the kernel accepts as an argument: text without NUL bytes. */
export const argument: option.OptionKind = {
  form: option.text.form,
  findProblem: (value) => option.text.findProblem(value) ?? nulFree.findProblem(value),
};

/** Program and arguments. */
export const argvKind = option.listOf(option.text, "an array of strings: program and arguments");
/** Program and arguments of `run`, without NUL bytes. */
export const runArgvKind = option.listOf(argument, argvKind.form);
/** Variables of an environment; the value of a variable is a string. */
export const variables = option.mapOf(option.text, "an object of strings");
export const clockKind: option.OptionKind = option.objectWith(
  "a Clock",
  ...(["now", "monotonic", "after"] satisfies (keyof Clock)[]),
);
export const backendKind = option.objectWith("an ExecBackend", "start");
export const processKind = option.objectWith("an ExecProcess", "events", "read");
export const readableKind = option.objectWith("a readable stream", "on", "read");
export const writableKind = option.objectWith("a writable stream", "on", "write");
export const outputStreamKind = option.oneOf("stdout", "stderr", "pty");

/** A regular expression or a plain text. */
export const patternKind = option.either(
  "a regular expression or a string",
  option.text,
  option.kind("a regular expression", (value) => Object.prototype.toString.call(value) === "[object RegExp]"),
);
export const signalKind = option.kind(
  "a signal name such as SIGTERM",
  (value) => typeof value === "string" && SIGNAL_NAME.test(value),
);

const nameKind = option.decodedBy(option.text, processName);
const labelsKind = option.decodedBy(variables, processLabels);

export const terminalSizeKind = optionsOf<TerminalSize>(
  () => ({ rows: required(option.smallCount), cols: required(option.smallCount) }),
  "an object with rows and cols",
);

export const envPolicyKind = optionsOf<EnvPolicy>(() => ({
  inherit: required(option.oneOf("all", "core", "none")),
  ignoreDefaultExcludes: required(option.flag),
  exclude: required(option.texts),
  set: required(variables),
  includeOnly: required(option.texts),
}));

export const limitsKind = optionsOf<ProcessLimits>(
  // One entry per name of `LIMIT_NAMES`, which are the keys of ProcessLimits.
  () => Object.fromEntries(LIMIT_NAMES.map((name) => [name, option.count])) as Record<LimitName, option.OptionKind>,
);

export const logLimitsKind = optionsOf<Partial<EventLogLimits>>(() => ({
  ...option.each(option.count, "retainedBytes", "retainedChunks", "headBytes", "tailBytes"),
}));

export const lifetimeKind = option.oneOf("session", "server", "persistent");

const callFields: option.OptionFields<CallOptions> = { signal: option.abortSignal };
export const callOptions = optionsOf<CallOptions>(() => callFields);

const startFields: option.OptionFields<StartParams> = {
  ...callFields,
  processId: required(option.text),
  argv: required(argvKind),
  cwd: required(option.described(option.text, pathForm)),
  env: required(variables),
  tty: required(option.flag),
  envPolicy: envPolicyKind,
  sandbox: option.anyValue,
  size: terminalSizeKind,
  mode: option.oneOf("direct", "prepared"),
  sandboxType: option.oneOf("none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken"),
  secretGuard: optionsOf<SecretGuard>(() => ({ inherit: required(option.texts) })),
  limits: limitsKind,
  lifetime: lifetimeKind,
  terminalQueries: option.oneOf("server", "client", "claimed"),
  name: nameKind,
  labels: labelsKind,
  networkProxy: option.decodedBy(option.anyObject, networkProxy),
  credentials: option.texts,
  managedNetwork: option.decodedBy(option.anyObject, managedNetwork),
  ...option.each(option.text, "arg0", "cwdIdentity", "ownerId"),
  ...option.each(option.flag, "pipeStdin", "recordInput", "enforceManagedNetwork"),
  ...option.each(option.milliseconds, "timeoutMs", "maxAgeMs"),
  ...option.each(option.callback, "decideNetwork", "onNetworkDecision"),
  ...option.each(option.anyObject, "sandboxScope", "sandboxRequirement", "persistentOwner"),
};
export const startOptions = optionsOf(() => startFields);

const runVariables = option.mapOf(argument, variables.form);
const variableName = option.kind("a name without `=`", (name) => name !== "" && !/[=\0]/.test(String(name)));

export const runFields: option.OptionFields<RunOptions> = {
  ...callFields,
  cwd: option.described(argument, pathForm),
  env: {
    form: variables.form,
    findProblem: (value) =>
      runVariables.findProblem(value) ??
      Object.keys(Object(value))
        .map(variableName.findProblem)
        .find((problem) => problem !== null) ??
      null,
  },
  envPolicy: option.nullOr(envPolicyKind),
  input: inputData,
  timeoutMs: option.milliseconds,
  maxBytes: option.count,
  encoding: option.oneOf("utf8", "buffer"),
  tty: option.flag,
  size: terminalSizeKind,
  processId: option.text,
  clock: clockKind,
  name: nameKind,
  labels: labelsKind,
};
export const runOptions = optionsOf(() => runFields);

export const writeOptions = optionsOf<WriteOptions>(() => ({ ...callFields, writeId: option.text }));
export const eventsOptions = optionsOf<EventsOptions>(() => ({
  ...callFields,
  afterSeq: option.count,
  lossless: option.flag,
}));
export const readOptions = optionsOf<ReadParams>(() => ({
  ...callFields,
  afterSeq: option.count,
  maxBytes: option.count,
  waitMs: option.milliseconds,
  times: option.flag,
}));

export const waitOptions = optionsOf<WaitParams>(() => ({
  ...callFields,
  until: option.variantsOf({
    exit: {},
    output: { pattern: required(option.text), stream: outputStreamKind },
    idle: { quietMs: required(option.milliseconds) },
    port: { port: required(option.smallCount) },
    bytes: { count: required(option.count) },
  }),
  afterSeq: option.count,
  timeoutMs: option.milliseconds,
}));

export const terminateModeKind = option.variantsOf({
  force: {},
  graceful: { timeoutMs: required(option.milliseconds) },
});

const collectFields: option.OptionFields<Omit<CollectOptions, "input">> = { ...callFields, maxBytes: option.count };
export const communicateOptions = optionsOf(() => collectFields);

export const streamFields: option.OptionFields<StreamOptions> = { ...callFields, stream: outputStreamKind };
export const streamOptions = optionsOf(() => streamFields);
export const linesOptions = optionsOf<LinesOptions>(() => ({
  ...streamFields,
  afterSeq: option.count,
  onGap: option.oneOf("throw", "yield"),
}));

export const waitForOptions = optionsOf<WaitForOptions>(() => ({
  ...callFields,
  stream: outputStreamKind,
  afterSeq: option.count,
  timeoutMs: option.milliseconds,
  clock: clockKind,
}));
