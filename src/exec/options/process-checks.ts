/** Argument checks of process calls, shared by local and remote processes. Each throws an `EINVAL` error. */

import { checkInputData } from "./input-bytes.ts";
import { checkArgument, checkOptions } from "./option-schema.ts";
import {
  callOptions,
  eventsOptions,
  readOptions,
  signalKind,
  startOptions,
  terminalSizeKind,
  terminateModeKind,
  waitOptions,
  writeOptions,
} from "./process-options.ts";

export function checkStart(params: unknown): void {
  checkOptions("start", params, startOptions, "params");
}

export function checkCall(operation: string, options: unknown): void {
  checkOptions(operation, options, callOptions);
}

export function checkEvents(options: unknown): void {
  if (options !== undefined) checkOptions("events", options, eventsOptions);
}

export function checkRead(params: unknown): void {
  checkOptions("read", params, readOptions, "params");
}

export function checkWait(params: unknown): void {
  checkOptions("wait", params, waitOptions, "params");
}

export function checkWrite(data: unknown, options: unknown): void {
  checkInputData("write", "data", data);
  checkOptions("write", options, writeOptions);
}

export function checkResize(size: unknown, options: unknown): void {
  checkArgument("resize", "size", size, terminalSizeKind);
  checkCall("resize", options);
}

export function checkSignal(name: unknown, options: unknown): void {
  checkArgument("signal", "name", name, signalKind);
  checkCall("signal", options);
}

export function checkKill(signal: unknown, options: unknown): void {
  checkArgument("kill", "signal", signal, signalKind);
  checkCall("kill", options);
}

export function checkTerminate(mode: unknown, options: unknown): void {
  if (mode !== undefined) checkArgument("terminate", "mode", mode, terminateModeKind);
  checkCall("terminate", options);
}
