/** Schemas of the options that local and remote processes share. */

import type { Clock } from "../../async/clock.ts";
import { managedNetwork, networkProxy } from "../../protocol/network/network-schemas.ts";
import { processLabels, processName } from "../../protocol/process-labels.ts";
import { LIMIT_NAMES, type LimitName } from "../../protocol/process-schemas.ts";
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
import type { CollectOptions } from "../run/collect-output.ts";
import type { LinesOptions } from "../run/lines.ts";
import type { RunOptions } from "../run/run-program.ts";
import type { StreamOptions } from "../run/stream-bytes.ts";
import type { WaitForOptions } from "../wait/wait-for-output.ts";
import { inputData } from "./input-bytes.ts";
import {
  abortSignal,
  anyObject,
  anyValue,
  callback,
  count,
  decodedBy,
  described,
  either,
  flag,
  kind,
  listOf,
  mapOf,
  milliseconds,
  nullOr,
  type OptionFields,
  type OptionKind,
  objectWith,
  oneOf,
  optionsOf,
  required,
  smallCount,
  text,
  variantsOf,
} from "./option-schema.ts";

const strings = listOf(text, "an array of strings");

const pathForm = "an absolute path or a file: URI";
const nulFree = kind("a string without NUL bytes", (value) => typeof value === "string" && !value.includes("\0"));
/** A string that the kernel accepts as an argument: text without NUL bytes. */
export const argument: OptionKind = {
  form: text.form,
  findProblem: (value) => text.findProblem(value) ?? nulFree.findProblem(value),
};

/** Program and arguments. */
export const argvKind = listOf(text, "an array of strings: program and arguments");
/** Variables of an environment; the value of a variable is a string. */
export const variables = mapOf(text, "an object of strings");
export const clockKind: OptionKind = objectWith(
  "a Clock",
  ...(["now", "monotonic", "after"] satisfies (keyof Clock)[]),
);
export const outputStreamKind = oneOf("stdout", "stderr", "pty");

/** A regular expression or a plain text. */
export const patternKind = either(
  "a regular expression or a string",
  text,
  kind("a regular expression", (value) => Object.prototype.toString.call(value) === "[object RegExp]"),
);
export const signalKind = described(text, "a signal name such as SIGTERM");

const nameKind = decodedBy(text, processName);
const labelsKind = decodedBy(variables, processLabels);

export const terminalSizeKind = optionsOf<TerminalSize>(
  { rows: required(smallCount), cols: required(smallCount) },
  "an object with rows and cols",
);

export const envPolicyKind = optionsOf<EnvPolicy>({
  inherit: required(oneOf("all", "core", "none")),
  ignoreDefaultExcludes: required(flag),
  exclude: required(strings),
  set: required(variables),
  includeOnly: required(strings),
});

export const limitsKind = optionsOf<ProcessLimits>(
  // One entry per name of `LIMIT_NAMES`, which are the keys of ProcessLimits.
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, count])) as Record<LimitName, OptionKind>,
);

export const lifetimeKind = oneOf("session", "server", "persistent");

const callFields: OptionFields<CallOptions> = { signal: abortSignal };
export const callOptions = optionsOf<CallOptions>(callFields);

const startFields: OptionFields<StartParams> = {
  ...callFields,
  processId: required(text),
  argv: required(argvKind),
  cwd: required(described(text, pathForm)),
  env: required(variables),
  tty: required(flag),
  pipeStdin: flag,
  arg0: text,
  envPolicy: envPolicyKind,
  sandbox: anyValue,
  size: terminalSizeKind,
  mode: oneOf("direct", "prepared"),
  sandboxType: oneOf("none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken"),
  timeoutMs: milliseconds,
  secretGuard: optionsOf<SecretGuard>({ inherit: required(strings) }),
  limits: limitsKind,
  cwdIdentity: text,
  lifetime: lifetimeKind,
  maxAgeMs: milliseconds,
  terminalQueries: oneOf("server", "client", "claimed"),
  recordInput: flag,
  name: nameKind,
  labels: labelsKind,
  networkProxy: decodedBy(anyObject, networkProxy),
  credentials: strings,
  enforceManagedNetwork: flag,
  managedNetwork: decodedBy(anyObject, managedNetwork),
  decideNetwork: callback,
  onNetworkDecision: callback,
  sandboxScope: anyObject,
  sandboxRequirement: anyObject,
  persistentOwner: anyObject,
  ownerId: text,
};
export const startOptions = optionsOf(startFields);

const runVariables = mapOf(argument, variables.form);
const variableName = kind("a name without `=`", (name) => name !== "" && !/[=\0]/.test(String(name)));

export const runFields: OptionFields<RunOptions> = {
  ...callFields,
  cwd: described(argument, pathForm),
  env: {
    form: variables.form,
    findProblem: (value) =>
      runVariables.findProblem(value) ??
      Object.keys(Object(value))
        .map(variableName.findProblem)
        .find((problem) => problem !== null) ??
      null,
  },
  envPolicy: nullOr(envPolicyKind),
  input: inputData,
  timeoutMs: milliseconds,
  maxBytes: count,
  encoding: oneOf("utf8", "buffer"),
  tty: flag,
  size: terminalSizeKind,
  processId: text,
  clock: clockKind,
  name: nameKind,
  labels: labelsKind,
};
export const runOptions = optionsOf(runFields);

export const writeOptions = optionsOf<WriteOptions>({ ...callFields, writeId: text });
export const eventsOptions = optionsOf<EventsOptions>({ ...callFields, afterSeq: count, lossless: flag });
export const readOptions = optionsOf<ReadParams>({
  ...callFields,
  afterSeq: count,
  maxBytes: count,
  waitMs: milliseconds,
  times: flag,
});

export const waitOptions = optionsOf<WaitParams>({
  ...callFields,
  until: variantsOf({
    exit: {},
    output: { pattern: required(text), stream: outputStreamKind },
    idle: { quietMs: required(milliseconds) },
    port: { port: required(smallCount) },
    bytes: { count: required(count) },
  }),
  afterSeq: count,
  timeoutMs: milliseconds,
});

export const terminateModeKind = variantsOf({ force: {}, graceful: { timeoutMs: required(milliseconds) } });

const collectFields: OptionFields<Omit<CollectOptions, "input">> = { ...callFields, maxBytes: count };
export const communicateOptions = optionsOf(collectFields);

export const streamFields: OptionFields<StreamOptions> = { ...callFields, stream: outputStreamKind };
export const streamOptions = optionsOf(streamFields);
export const linesOptions = optionsOf<LinesOptions>({
  ...streamFields,
  afterSeq: count,
  onGap: oneOf("throw", "yield"),
});

export const waitForOptions = optionsOf<WaitForOptions>({
  ...callFields,
  stream: outputStreamKind,
  afterSeq: count,
  timeoutMs: milliseconds,
  clock: clockKind,
});
