// node perfetto.js FOLDER FILE OUT: Perfetto reads the timeline FILE, and writes what it has understood to OUT. FOLDER has its traceconv, which is made for
// a worker of a browser: this is one, as far as that asks for it.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [folder, file, out] = process.argv.slice(2);

function plain(buffer) {
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.length);
}

function part(url) {
  return fs.readFileSync(path.join(folder, path.basename(url)));
}

class Piece {
  constructor(buffer) {
    this.buffer = buffer;
    this.size = buffer.length;
  }
  slice(begin, end) {
    return new Piece(this.buffer.subarray(begin, end));
  }
}

class FileReaderSync {
  readAsArrayBuffer(piece) {
    return plain(piece.buffer);
  }
}

class XMLHttpRequest {
  open(_, url) {
    this.url = url;
  }
  send() {
    this.response = plain(part(this.url));
    this.status = 200;
  }
}

const told = [];
function fail(why) {
  console.error(told.concat(String(why)).join('\n'));
  process.exit(1);
}

function postMessage(message) {
  switch (message.kind) {
    case 'downloadFile':
      fs.writeFileSync(out, Buffer.from(message.buffer));
      process.exit(0);
      break;
    case 'updateStatus':
      told.push(message.status);
      break;
    case 'error':
      fail(JSON.stringify(message.error));
      break;
    case 'jobCompleted':
      // What has gone wrong is told after it.
      setTimeout(() => fail('nothing has come of it'), 1000);
      break;
  }
}

const worker = {
  ArrayBuffer, Blob, FileReaderSync, Response, TextDecoder, TextEncoder, URL, Uint8Array, WebAssembly, XMLHttpRequest,
  addEventListener() {}, console, crypto,
  fetch: async (url) => new Response(part(url), { headers: { 'content-type': 'application/wasm' } }),
  importScripts() {}, location: { href: 'file:///traceconv_bundle.js' }, navigator: { userAgent: '' }, performance, postMessage, queueMicrotask,
  setTimeout, WorkerGlobalScope() {},
};
worker.self = worker;
vm.createContext(worker);
process.on('unhandledRejection', fail);
vm.runInContext(part('traceconv_bundle.js').toString(), worker);
worker.onmessage({ data: { kind: 'ConvertTraceAndDownload', trace: new Piece(fs.readFileSync(file)), format: 'json' } });
