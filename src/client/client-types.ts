/** Types in the client's signatures that work without Node; exported by all entry points of the package. */

export type { Clock, Timer } from "../async/clock.ts";
export type { WatchReceiver } from "../async/watch.ts";
export type {
  BinaryBlocks,
  ByteSource,
  BytesDecoder,
  ChunkedMessage,
  Connection,
  ConnectionEvent,
  DirectInput,
} from "../connection/connection.ts";
export type { PersistentOwner } from "../exec/backend/persistent-process.ts";
export type { LimitName, ProcessLimits } from "../exec/backend/process-limits.ts";
export type * from "../exec/exec-process.ts";
export type { OutputChunk as ProcessOutputChunk } from "../exec/exec-process.ts";
export type { EventLogLimits } from "../exec/log/event-log.ts";
export type { SizeChange, SizeHistory } from "../exec/log/size-history.ts";
export type { InputData } from "../exec/options/input-bytes.ts";
export type { CollectedOutput, CollectOptions } from "../exec/run/collect-output.ts";
export type { CommunicateResult } from "../exec/run/communicate.ts";
export type { LinesOptions } from "../exec/run/lines.ts";
export type { RunOptions, RunResult } from "../exec/run/run-program.ts";
export type { StreamOptions } from "../exec/run/stream-bytes.ts";
export type { Match, WaitForOptions } from "../exec/wait/wait-for-output.ts";
export type { ByteStream, ByteStreamEvents } from "../forward/byte-stream.ts";
export type { ForwardAddress } from "../forward/forward-address.ts";
export type { Message, RequestId, Trace } from "../protocol/envelope.ts";
export type { RequestErrorOptions, WireError } from "../protocol/errors.ts";
export type {
  ErrorReason,
  ExecServerErrorCode,
  ExecServerErrorDetails,
  SystemErrorCode,
} from "../protocol/exec-server-error.ts";
export type { InProcessClient, InProcessConnection, InProcessServer } from "../protocol/in-process.ts";
export type {
  EnvironmentInfo,
  EXTENSIONS,
  Extension,
  environmentInfo,
  Family,
  HandleServerRequest,
  MethodName,
  MethodSpec,
  methods,
  NotificationSpec,
  ParamsOf,
  ProtocolVersion,
  ResultOf,
  ServerNotification,
  ServerNotificationName,
  ServerNotificationParams,
  ServerRequest,
  ServerRequestResult,
  serverNotifications,
} from "../protocol/methods.ts";
export type {
  AskConsole,
  NetworkAnswer,
  NetworkConnection,
  NetworkDecision,
  NetworkPolicy,
  NetworkProxyConfig,
  NetworkRequest,
  UserAnswer,
} from "../protocol/network/network-schemas.ts";
export type { Fields, Infer, ObjectSchema, Schema } from "../protocol/schema.ts";
export type * from "./copy/copy-types.ts";
export type {
  ConnectionState,
  ExecServerClientOptions,
  KillOptions,
  ProtocolCallOptions,
  ShareOptions,
} from "./exec-server-client.ts";
export type { ChecksumOptions, CommitOptions, RemoteFile } from "./files/remote-file.ts";
export type {
  AttributeOptions,
  CopyOptions,
  CreateDirectoryOptions,
  DirectoryEntry,
  FileMetadata,
  MetadataOptions,
  PathScan,
  PutContent,
  RemoteFiles,
  RemoveOptions,
  ScannedEntry,
  ScanOptions,
  WalkOptions,
  WalkResult,
} from "./files/remote-files.ts";
export type { ForwardedPorts, RemoteForwards, RemoteListener } from "./network/remote-forwards.ts";
export type { HttpRequest, HttpResponse, RemoteHttp } from "./network/remote-http.ts";
export type { AttachedProcess, AttachOptions, AttachRole } from "./process/attached-process.ts";
export type { ListOptions, RemoteBackend } from "./process/remote-backend.ts";
export type { RemoteProcess } from "./process/remote-process.ts";
export type { ExecServerEvent } from "./process/v0-client.ts";
export type { ReconnectPolicy } from "./session/reconnect-policy.ts";
export type { ResendPolicy } from "./session/reconnecting-session.ts";
export type * from "./v0-type-aliases.ts";
