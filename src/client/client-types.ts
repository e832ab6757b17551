/** Every type that a signature of the client names and that needs no Node: exported by all entries of the package. */

export type { Clock, Timer } from "../async/clock.ts";
export type { WatchReceiver } from "../async/watch.ts";
export type { Connection, ConnectionEvent, TakeBytes } from "../connection/connection.ts";
export type { LongMessage } from "../connection/long-message.ts";
export type { StraightWay, WriteParams as StraightWrite } from "../connection/straight-way.ts";
export type { CollectedOutput, CollectOptions } from "../exec/collect-output.ts";
export type { CommunicateResult } from "../exec/communicate.ts";
export type { EventLogLimits } from "../exec/event-log.ts";
export type * from "../exec/exec-process.ts";
export type { KeptOwner } from "../exec/kept-process.ts";
export type { LinesOptions } from "../exec/lines.ts";
export type { LimitName, ProcessLimits } from "../exec/process-limits.ts";
export type { RunOptions, RunResult } from "../exec/run-program.ts";
export type { SizeChange, SizeHistory } from "../exec/size-history.ts";
export type { StreamOptions } from "../exec/stream-bytes.ts";
export type { Match, WaitForOptions } from "../exec/wait-for-output.ts";
export type { ByteStream, ByteStreamEvents } from "../forward/byte-stream.ts";
export type { Message, RequestId, Trace } from "../protocol/envelope.ts";
export type { WireError } from "../protocol/errors.ts";
export type { ExecServerErrorDetails } from "../protocol/exec-server-error.ts";
export type { InProcessClient, InProcessConnection, InProcessServer } from "../protocol/in-process.ts";
export type {
  EnvironmentInfo,
  EXTENSIONS,
  Extension,
  environmentInfo,
  Family,
  Generation,
  Method,
  MethodName,
  methods,
  Notification,
  ParamsOf,
  ResultOf,
  ServerNotification,
  ServerNotificationName,
  ServerNotificationParams,
  serverNotifications,
} from "../protocol/methods.ts";
export type { Fields, Infer, ObjectSchema, Schema } from "../protocol/schema.ts";
export type { AttachedProcess, AttachOptions, Role } from "./attached-process.ts";
export type { ExecServerEvent } from "./command-sessions.ts";
export type { CopyFilesOptions, CopyPlace, CopyProblem, CopyResult, CopyTally } from "./copy/copy-types.ts";
export type { ConnectionState, ExecServerClientOptions, ShareOptions } from "./exec-server-client.ts";
export type { LinkCallOptions, Resend } from "./link.ts";
export type { ListOptions, RemoteBackend } from "./remote-backend.ts";
export type { PartEnd, RemoteFile } from "./remote-file.ts";
export type {
  AttributeOptions,
  CopyOptions,
  CreateDirectoryOptions,
  DirectoryEntry,
  FileMetadata,
  MetadataOptions,
  PutContent,
  RemoteFiles,
  RemoveOptions,
  Scan,
  ScannedEntry,
  ScanOptions,
  WalkOptions,
  WalkResult,
} from "./remote-files.ts";
export type { ForwardedPorts, RemoteForwards, RemoteListener } from "./remote-forwards.ts";
export type { HttpRequest, HttpResponse, RemoteHttp } from "./remote-http.ts";
export type { RemoteProcess } from "./remote-process.ts";
export type { ReconnectPolicy } from "./resume.ts";
export type * from "./seed-names.ts";
