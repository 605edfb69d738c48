//! Refusals of the device. The error gives the remedy, no resource leaks, and later calls work.

use unipgas_core::op::ReplyBuffer;
use unipgas_core::transport::{Handler, Transport};
use unipgas_core::{Error, Flags, Rights};

use crate::choice::reach;
use crate::device::{count, inject};
use crate::node::{Node, remote};
use crate::process::alone;
use unipgas_core::registry::Opening;
use unipgas_verbs::Verbs;

#[test]
fn memory_that_cannot_be_locked_where_its_pages_come_on_demand() {
    alone("odp=1", || {
        let (node, other) = (Node::open(), Node::open());
        for _ in 0..50 {
            inject("reg_fails=1");
            assert!(node.transport.allocate(8192, Rights::FULL).is_ok());
            inject("reg_fails=2");
            assert!(node.transport.allocate(8192, Rights::FULL).is_err());
        }
        let link = node.know(&other);
        node.works(&link);
    });
}

#[test]
fn memory_that_is_not_registered() {
    alone("max_mr=40", || {
        let (node, other) = (Node::open(), Node::open());
        let link = node.know(&other);
        node.works(&link);
        let mut memory = vec![0u8; 8192];
        for _ in 0..200 {
            inject("reg_fails=3");
            let refused = [
                node.transport.allocate(4096, Rights::FULL).map(drop),
                // SAFETY:
                // - the memory lives longer than the registration.
                unsafe {
                    node.transport
                        .register(memory.as_mut_ptr(), 4096, Rights::FULL)
                        .map(drop)
                },
                // SAFETY:
                // - as above.
                unsafe {
                    node.transport
                        .register_local(memory.as_mut_ptr(), 4096, true)
                        .map(drop)
                },
            ];
            for one in refused {
                let error = one.unwrap_err();
                assert!(matches!(error, Error::Exhausted(_)), "{error}");
                assert!(error.to_string().contains("ulimit -l"), "{error}");
                assert!(!error.to_string().contains('\n'));
            }
            let memory = node.transport.allocate(4096, Rights::FULL).unwrap();
            assert!(memory.len() == 4096);
        }
        node.works(&link);
    });
}

/// Answers with the message, which is long.
struct Long;

impl Handler for Long {
    fn handle(&self, _: usize, message: &[u8], reply: &mut Vec<u8>) -> Result<(), u32> {
        reply.extend_from_slice(message);
        Ok(())
    }
}

/// Buffers are registered on first use. Messages also work if that fails.
#[test]
fn buffers_that_are_not_registered() {
    alone("", || {
        let (node, other) = (Node::open(), Node::open());
        other.memory.handle_by(std::sync::Arc::new(Long)).unwrap();
        let link = node.know(&other);
        let message: Vec<u8> = (0..1000).map(|nth| nth as u8).collect();
        for round in 0..4 {
            if round < 3 {
                inject("reg_fails=40");
            }
            let mut answer = vec![0u8; 1000];
            // SAFETY:
            // - the bytes outlive the operation.
            let reply = unsafe { ReplyBuffer::new(answer.as_mut_ptr(), answer.len()) };
            node.channel
                .active_message(remote(&link, 0), &message, reply, Flags::empty(), 1)
                .unwrap();
            assert_eq!(node.settle(), []);
            assert_eq!(answer, message);
            inject("reg_fails=0");
        }
        node.works(&link);
    });
}

#[test]
fn connections_that_are_not_made() {
    alone("max_qp=12", || {
        let node = Node::open();
        let keeps = Node::open();
        let to_keep = node.know(&keeps);
        for nth in 0..30 {
            let other = Node::open();
            let before = count("qp");
            // Alternately on this side and on the other one.
            inject(if nth % 2 == 0 {
                "create_qp_fails=1"
            } else {
                "reg_fails=1"
            });
            let here = node.transport.connect(&other.transport.address()).map(drop);
            inject("create_qp_fails=0");
            inject("reg_fails=0");
            if nth % 2 == 0 {
                let error = here.unwrap_err();
                assert!(
                    matches!(error, Error::Os(_) | Error::Exhausted(_)),
                    "{error}"
                );
                assert!(error.to_string().contains("ulimit -l"), "{error}");
                assert_eq!(count("qp"), before);
            }
            node.works(&node.know(&other));
            node.works(&to_keep);
        }
    });
}

#[test]
fn a_place_that_is_not_opened() {
    alone("max_qp=4", || {
        inject("create_qp_fails=100");
        for _ in 0..8 {
            let error = Verbs::from_env(&Opening::on_one_host(2))
                .map(drop)
                .unwrap_err();
            println!("{error}");
            assert!(error.to_string().contains("ibv_create_qp"), "{error}");
        }
        inject("create_qp_fails=0");
        reach(&Node::open(), &Node::open());
    });
}

#[test]
fn a_device_that_is_full_says_so_on_both_sides() {
    alone("max_qp=3", || {
        let node = Node::open();
        let all: Vec<Node> = (0..5).map(|_| Node::open()).collect();
        let mut links = Vec::new();
        let mut refused = 0;
        for other in &all {
            match node.try_find(&other.name()) {
                Ok(link) => links.push(link),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("ibv_create_qp"), "{error}");
                }
            }
        }
        assert_eq!((links.len(), refused), (3, 2));
        // In the other direction.
        let error = all[4].try_find(&node.name()).map(drop).unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
        links.iter().for_each(|link| node.works(link));
    });
}
