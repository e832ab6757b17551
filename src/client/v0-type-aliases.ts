/** Types of the protocol and its client under their v0 names. */

import type { ExecEvent, ExecProcess, OutputChunk, OutputStream, ReadResult } from "../exec/exec-process.ts";
import type { ParamsOf, ResultOf, ServerNotificationParams } from "../protocol/methods.ts";
import type { ExecServerClientOptions } from "./exec-server-client.ts";

export type ExecServerClientConnectOptions = ExecServerClientOptions;
export type ExecServerOutput = ServerNotificationParams<"command/exec/outputDelta">;

export type InitializeParams = ParamsOf<"initialize">;
export type InitializeResponse = ResultOf<"initialize">;
export type ExecParams = ParamsOf<"command/exec">;
export type ExecResponse = ResultOf<"command/exec">;
export type WriteParams = ParamsOf<"command/exec/write">;
export type WriteResponse = ResultOf<"command/exec/write">;
export type TerminateParams = ParamsOf<"command/exec/terminate">;
export type TerminateResponse = ResultOf<"command/exec/terminate">;
export type ExecOutputDeltaNotification = ServerNotificationParams<"command/exec/outputDelta">;
export type ExecExitedNotification = ServerNotificationParams<"command/exec/exited">;

export type ProcessId = string;
export type StartedExecProcess = ExecProcess;
export type ExecProcessEvent = ExecEvent;
export type ExecOutputStream = OutputStream;
export type ProcessOutputChunk = OutputChunk;
export type ReadResponse = ReadResult;
