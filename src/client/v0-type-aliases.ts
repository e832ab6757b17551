/** Types of the protocol and its client under their v0 names. */

import type { ExecEvent, ExecProcess, OutputStream, ReadResult } from "../exec/exec-process.ts";
import type { ParamsOf, ResultOf, ServerNotificationParams } from "../protocol/methods.ts";
import type { ExecServerClientOptions } from "./exec-server-client.ts";

export type ExecServerClientConnectOptions = ExecServerClientOptions;
export interface ExecServerOutput extends ServerNotificationParams<"command/exec/outputDelta"> {}

export interface InitializeParams extends ParamsOf<"initialize"> {}
export interface InitializeResponse extends ResultOf<"initialize"> {}
export interface ExecParams extends ParamsOf<"command/exec"> {}
export interface ExecResponse extends ResultOf<"command/exec"> {}
export interface WriteParams extends ParamsOf<"command/exec/write"> {}
export interface WriteResponse extends ResultOf<"command/exec/write"> {}
export interface TerminateParams extends ParamsOf<"command/exec/terminate"> {}
export interface TerminateResponse extends ResultOf<"command/exec/terminate"> {}
export interface ExecOutputDeltaNotification extends ServerNotificationParams<"command/exec/outputDelta"> {}
export interface ExecExitedNotification extends ServerNotificationParams<"command/exec/exited"> {}

export type ProcessId = string;
export type StartedExecProcess = ExecProcess;
export type ExecProcessEvent = ExecEvent;
export type ExecOutputStream = OutputStream;
export type ReadResponse = ReadResult;
