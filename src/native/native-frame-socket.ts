import type { FrameSocketEvents } from "../connection/frame-socket.ts";
import { type NativeAddon, NativeEventError, type NativeSocket, type NativeSocketEvent } from "./addon.ts";
import { closeProblem } from "./native-codec.ts";

/** The members of a FrameSocket that only call the addon, and the events after the upgrade. */
export abstract class NativeFrameSocket {
  protected readonly native: NativeAddon;
  protected readonly socket: NativeSocket;

  constructor(native: NativeAddon, socket: NativeSocket) {
    this.native = native;
    this.socket = socket;
  }

  sendFrame(frame: Buffer): void {
    this.native.sendBytes(this.socket, frame);
  }

  get queuedBytes(): number {
    return this.native.queuedBytes(this.socket);
  }

  get sentBytes(): number {
    return this.native.sentBytes(this.socket);
  }

  get receivedBytes(): number {
    return this.native.receivedBytes(this.socket);
  }

  pause(): void {
    this.native.pauseSocket(this.socket);
  }

  resume(): void {
    this.native.resumeSocket(this.socket);
  }

  end(): void {
    this.native.endSocket(this.socket);
  }

  abstract destroy(): void;

  protected onFrameEvent(frames: FrameSocketEvents, event: NativeSocketEvent): void {
    switch (event.type) {
      case "drain":
        frames.drain();
        break;
      case "end":
        frames.end();
        break;
      case "close":
        frames.close(closeProblem(event));
        break;
      default:
        // An event was lost, so the connection cannot continue.
        this.destroy();
        frames.close(new NativeEventError("socket", event).message);
    }
  }
}
