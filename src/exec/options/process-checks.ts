/** Argument checks of process calls, shared by local and remote processes. Each throws an `EINVAL` error. */

import { checkInputData } from "./input-bytes.ts";
import { checkArgument, checkOptions, nonEmptyText } from "./option-schema.ts";
import * as schemas from "./process-options.ts";

export function checkStart(params: unknown): void {
  checkOptions("start", params, schemas.startOptions, "params");
}

/** Also checks arguments that must be strings, by their names. */
export function checkCall(operation: string, options: unknown, strings: Record<string, unknown> = {}): void {
  for (const [name, value] of Object.entries(strings)) checkArgument(operation, name, value, nonEmptyText);
  checkOptions(operation, options, schemas.callOptions);
}

export function checkEvents(options: unknown): void {
  if (options !== undefined) checkOptions("events", options, schemas.eventsOptions);
}

export function checkRead(params: unknown): void {
  checkOptions("read", params, schemas.readOptions, "params");
}

export function checkWait(params: unknown): void {
  checkOptions("wait", params, schemas.waitOptions, "params");
}

export function checkWrite(data: unknown, options: unknown): void {
  checkInputData("write", "data", data);
  checkOptions("write", options, schemas.writeOptions);
}

export function checkResize(size: unknown, options: unknown): void {
  checkArgument("resize", "size", size, schemas.terminalSizeKind);
  checkCall("resize", options);
}

export function checkSignal(name: unknown, options: unknown): void {
  checkArgument("signal", "name", name, schemas.signalKind);
  checkCall("signal", options);
}

export function checkKill(signal: unknown, options: unknown): void {
  checkArgument("kill", "signal", signal, schemas.signalKind);
  checkCall("kill", options);
}

export function checkTerminate(mode: unknown, options: unknown): void {
  if (mode !== undefined) checkArgument("terminate", "mode", mode, schemas.terminateModeKind);
  checkCall("terminate", options);
}
